"""Shell scripts that run inside containers, with their arguments apart from their text."""

from __future__ import annotations

import re

#: Runs its first argument with bash where the image has it, else with sh.
RUN = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec /bin/sh -c "$1"; fi'

#: Makes the folder of its first argument.
MAKE_PARENT = 'case "$1" in ?*/*) mkdir -p -- "${1%/*}";; esac'

#: Writes its input to its first argument, with the mode of the second.
WRITE = f'{MAKE_PARENT} && cat > "$1" && chmod "$2" -- "$1"'

#: Prints a regular file. A folder or a missing file is an error.
READ = '[ -f "$1" ] || { echo "no such file: $1" >&2; exit 44; }; exec cat -- "$1"'

#: Starts a program in the background.
BACKGROUND = '"$@" </dev/null >/dev/null 2>&1 &'

#: Kills every process whose environment has the text of the first argument.
KILL_MARKED = """
for process in /proc/[0-9]*; do
  grep -q -- "$1" "$process/environ" 2>/dev/null && kill -9 "${process#/proc/}"
done
exit 0
"""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def script(text: str, *arguments: str) -> list[str]:
    """The command that runs a script with arguments."""
    return ["/bin/sh", "-c", text, "sh", *arguments]


def checked_variables(env: object) -> dict[str, str]:
    """Environment variables as texts. A name that is none is a `ValueError`."""
    variables = {str(name): str(value) for name, value in dict(env or {}).items()}  # type: ignore[call-overload]
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise ValueError(f"not an environment variable: {name!r}")
    return variables
