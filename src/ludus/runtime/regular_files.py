"""Opening files of a run, which must be regular files.

A FIFO blocks whoever opens it until another program writes, a device may never end, and a socket cannot be opened.
Where a file of a run should stand, each of them is an error that a user can fix.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def open_regular(path: Path, buffering: int = -1) -> IO[bytes]:
    """Open a file to read it. Raises OSError if it is missing or no regular file."""
    return open(path, "rb", buffering=buffering, opener=regular_descriptor)


def read_regular(path: Path) -> bytes:
    """The content of a file. Raises OSError if it is missing or no regular file."""
    with open_regular(path) as file:
        return file.read()


def regular_descriptor(path: str | Path, flags: int, mode: int = 0o644) -> int:
    """`os.open` for regular files: whatever else stands at the path raises OSError, and nothing waits."""
    try:
        _check(os.stat(path).st_mode)  # opening a device may have effects, and a socket cannot be opened
    except FileNotFoundError:
        pass  # `os.open` may create it
    file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), mode)
    try:
        _check(os.fstat(file).st_mode)
    except OSError:
        os.close(file)
        raise
    return file


def _check(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")
