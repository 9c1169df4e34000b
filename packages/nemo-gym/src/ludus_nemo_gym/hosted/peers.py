"""Which process a connection on loopback comes from. Only Linux tells; elsewhere every process counts as ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ludus_nemo_gym.hosted.offspring import FOLDERS, marked

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def is_ours(peer: tuple[str, int] | None) -> bool:
    """Whether a connection comes from this process, or from a server that it started and what that one started."""
    if not os.path.exists(_TABLES[0]):
        return True
    sockets = {f"socket:[{inode}]" for inode in _inodes(peer[1])} if peer else set()
    if not sockets:
        return False
    marks = [mark for folder in FOLDERS for mark in marked(folder)]
    return any(not sockets.isdisjoint(_files(process)) for process in (os.getpid(), *marks))


def _inodes(port: int) -> Iterator[str]:
    """The sockets of this machine whose own end is a port on loopback."""
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                address, _, number = fields[1].rpartition(":")
                if int(number, 16) == port and address.endswith(("0100007F", "01000000")):
                    yield fields[9]


def _files(process: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{process}/fd/{name}")
