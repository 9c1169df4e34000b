"""Folders of the host that a sandbox sees and cannot change: the files of a program that an agent brings along.

Everything in such a folder can be read by the programs in the sandbox. A symbolic link in it is followed inside the
sandbox, so a link that leaves the folder does not lead to the host.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ludus

#: Where no folder can be mounted: the system's own places, and those that programs write to.
_RESERVED = (
    *("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys", "/dev", "/tmp", "/home/user"),
    *("/opt/packages", "/opt/libraries", "/.ludus"),
)


@dataclass(frozen=True)
class Mount:
    """A folder of the host, and where it is inside; by default under the same path."""

    source: str
    place: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", os.path.abspath(self.source))
        object.__setattr__(self, "place", os.path.normpath(self.place or self.source))


def mount_problem(mounts: Sequence[Mount], folders: Sequence[str] = ()) -> str | None:
    """Why folders cannot be mounted, or None. `folders` are the names of a spec's own folders at the root."""
    return next(_problems(mounts, folders), None)


def sources(mounts: Sequence[Mount]) -> list[str]:
    """The folders behind the mounts, without symbolic links."""
    return [os.path.realpath(mount.source) for mount in mounts]


def hidden_places(folders: Sequence[tuple[str, str]]) -> list[str]:
    """Where our own package would be seen inside, in folders of the host and their places: it has answers to tasks."""
    ours = os.path.realpath(os.path.dirname(ludus.__file__))
    seen = ((os.path.realpath(source), place) for source, place in folders)
    return [place + ours.removeprefix(source) for source, place in seen if ours.startswith(f"{source}/")]


def python_mounts(folder: str, place: str = "", link: str = "bin/python") -> tuple[Mount, ...]:
    """The mounts of a Python virtual environment: the folder, and the Python that it links to, if not under `/usr`."""
    python = os.path.realpath(os.path.join(folder, link))
    prefix = os.path.dirname(os.path.dirname(python))
    own = Mount(folder, place)
    if _within(prefix, "/usr") or _within(prefix, os.path.realpath(folder)):
        return (own,)
    return (Mount(prefix),) if _within(own.place, prefix) else (own, Mount(prefix))


def _problems(mounts: Sequence[Mount], folders: Sequence[str]) -> Iterator[str]:
    for number, mount in enumerate(mounts):
        if not os.path.isdir(mount.source):
            yield f"cannot mount {mount.source}: there is no such folder"
        elif os.geteuid() == 0 and os.stat(mount.source).st_mode & 0o005 != 0o005:  # programs run as another user
            yield f"cannot mount {mount.source}, which only root may read: chmod -R o+rX {shlex.quote(mount.source)}"
        if not mount.place.startswith("/"):
            yield f"cannot mount {mount.source} at {mount.place}: the place must be an absolute path"
        others = (*_RESERVED, *(f"/{name}" for name in folders), *(other.place for other in mounts[:number]))
        for other in others:
            if _within(mount.place, other) or _within(other, mount.place):
                yield f"cannot mount {mount.source} at {mount.place}, because of {other}: use a place such as /opt/NAME"


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
