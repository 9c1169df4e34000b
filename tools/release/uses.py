"""What each extra promises, as a script that uses it: `uses/EXTRA.sh`.

The first line of a script says in words what it shows. The script runs twice, in an empty folder each: with the extra
installed alone it must succeed, and without the extra it must fail and name the command that installs it. So a script
that needs nothing of its extra is found. Where Ludus cannot know that the extra is missing, a second line
`# without: TEXT` has the words that the failure must contain instead.

Scripts find `ludus` and `python` of the clean environment on the path, the unpacked source archive in `$SOURCE`, and
these functions:

    expect_reward RUN REWARD        the mean reward of a collection
    expect_completed RUN COUNT      the number of its completed rollouts
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from building import ReleaseError
from checking import CleanEnvironment
from running import CommandFailed

FOLDER = Path(__file__).parent / "uses"

_FUNCTIONS = """
set -euo pipefail
metric() { python -c 'import json, sys
found = json.load(open(sys.argv[1] + "/metrics.json"))
for key in sys.argv[2].split("."):
    found = found[key]
print(found)' "$1" "$2"; }
expect() {
    local found; found=$(metric "$1" "$2")
    if [ "$found" != "$4" ]; then echo "$3 of $1 is $found instead of $4" >&2; exit 1; fi
}
expect_reward() { expect "$1" reward.mean "the mean reward" "$2"; }
expect_completed() { expect "$1" counts.completed "the number of completed rollouts" "$2"; }
"""


@dataclass
class Use:
    """The script of one extra."""

    extra: str
    #: what the script shows, in words
    shows: str
    #: words of its failure where the extra is not installed
    without: str
    script: str


def read_use(extra: str, folder: Path = FOLDER) -> Use:
    """The script of an extra. An extra without one is refused."""
    path = folder / f"{extra}.sh"
    if not path.exists():
        raise ReleaseError(f"no script uses the extra {extra}: write {path.parent.name}/{path.name}")
    script = path.read_text()
    shows = re.match(r"# (.+)\n", script)
    if shows is None:
        raise ReleaseError(f"{path.name}: the first line must be a comment that says what the script shows")
    without = re.search(r"^# without: (.+)$", script, re.MULTILINE)
    return Use(extra, shows[1], without[1] if without else f"ludus-gym[{extra}]", script)


def check_with(use: Use, clean: CleanEnvironment, source: Path) -> None:
    """Run the script where its extra is installed: it must succeed."""
    clean.bash(_FUNCTIONS + use.script, f"{use.extra}-with", SOURCE=str(source))


def check_without(use: Use, clean: CleanEnvironment, source: Path) -> None:
    """Run the script where its extra is not installed: it must fail and say what is missing."""
    try:
        clean.bash(_FUNCTIONS + use.script, f"{use.extra}-without", SOURCE=str(source))
    except CommandFailed as error:
        if use.without not in error.printed:
            raise ReleaseError(f"without the extra, nothing says `{use.without}`: {error}") from error
    else:
        raise ReleaseError("its script also succeeds without the extra, and therefore shows nothing")
