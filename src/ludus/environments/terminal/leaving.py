"""The model's files, made safe to judge: no link in it may lead to what only the judge has.

A link to `/tests/expected.csv` would be the right answer to every test, without any work.
"""

from __future__ import annotations

from dataclasses import replace

from ludus.sandbox import Sandbox, SandboxSpec
from ludus.sandbox.protocol import HOME

#: Empties the judge's folders and removes links. A link stays if it leads into the working folder, or to something
#: that is there already and that no test script writes. `$0` is the working folder, `$1` where the judge's folders
#: are, and the others are the folders in which links are looked for: `..` means another folder in each of them.
_SCRIPT = r"""
{ [ -L "${1}logs" ] || ! [ -d "${1}logs" ]; } && rm -rf -- "${1}logs"
rm -rf -- "${1}tests" "${1}logs/verifier"; mkdir -p -- "${1}logs/verifier" "${1}logs/agent" "$0" || exit 1
shift; cd /; work=$(realpath -m -- "$0"); home=$(realpath -m -- "$HOME")
is_the_judges() {
    case "$1/" in
        /tests/*|/logs/*|/solution/*|/proc/*|/dev/*|/sys/*|/run/*) return 0 ;;
        "$home"/tests/*|"$home"/logs/*|"$home"/solution/*) return 0 ;;
    esac
    return 1
}
leads_away() {
    is_the_judges "$1" && return 0
    case "$1/" in
        "$work"/*|/app/*|"$home"/app/*) return 1 ;;
        /tmp/*|/var/tmp/*) return 0 ;;
    esac
    ! [ -e "$1" ]
}
is_the_judges "$work" && exit 1
for folder in "$@"; do
    find "$folder/" -type l -print0 2>/dev/null | while IFS= read -r -d '' link; do
        target=$(realpath -m -- "$link" 2>/dev/null; echo x)
        target=${target%?x}
        if [ -z "$target" ] || leads_away "$target"; then
            chmod u+w -- "${link%/*}" 2>/dev/null
            rm -f -- "$link" || exit 1
        fi
    done || exit 1
done
"""


async def made_safe(sandbox: Sandbox, workdir: str, root: str) -> bool:
    """Empty the judge's folders and remove links to them. `root` is where these folders are, HOME if it is empty.

    False if the working folder cannot be used any more.
    """
    views = [workdir] if root else [HOME, workdir, "/app"]
    ended = await sandbox.exec(["bash", "-c", _SCRIPT, workdir, root, *dict.fromkeys(views)], timeout=60)
    return ended.ok


def with_room(spec: SandboxSpec, size: int) -> SandboxSpec:
    """A spec with room for the tests beside large leftovers. Small ones take a warm sandbox of the usual size."""
    limits = spec.limits
    if size < limits.disk_mb << 17:
        return spec
    memory = limits.memory_mb + (2 * size >> 20)  # files lie in memory
    return replace(spec, limits=replace(limits, disk_mb=2 * limits.disk_mb, files=2 * limits.files, memory_mb=memory))
