"""Folders mounted so that root's files belong to another user there: the files of an image need not be copied.

Linux maps the owners of one mount, and reads them in an overlay since 5.19. Only root's files are mapped: those of any
other owner belong to nobody in such a mount, and an overlay cannot change them.

    python shifted.py USER FOLDER PLACE [FOLDER PLACE ...]
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: System calls with the same number on all machines since Linux 5.1.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _EMPTY_PATH, _CLONE, _MOVE_EMPTY_PATH = -100, 0x1000, 1, 4
_READ_ONLY, _OWNERS = 0x1, 0x100000
_NEW_USERS = 0x10000000


def command(user: int, folders: Sequence[tuple[str, str]]) -> list[str]:
    """The command that mounts folders of this machine at places of its mount namespace."""
    source = Path(__file__).read_text(encoding="utf-8")
    words = [word for folder, place in folders for word in (folder, place)]
    return [sys.executable, "-I", "-S", "-c", source, str(user), *words]


def is_possible(folder: Path, user: int) -> bool:
    """Whether this machine can mount a folder so: it tries, in a namespace that ends with the attempt."""
    trial = ["unshare", "--mount", "--propagation", "private", *command(user, [(str(folder), "/mnt")])]
    try:
        return subprocess.run(trial, capture_output=True, check=False, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Copied(NamedTuple):
    """What of an image must be copied: names for tar, and the folders among them that are copied as a whole."""

    names: list[bytes]
    whole: list[bytes]


def not_of_root(folder: Path) -> Copied:
    """The files and folders that do not belong to root and its group, with the folders on the way to them."""
    top = os.fsencode(folder)
    names: dict[bytes, None] = {b".": None}
    whole: list[bytes] = []
    device = os.lstat(top).st_dev
    for place, folders, files in os.walk(top):
        folders[:] = [name for name in folders if os.lstat(os.path.join(place, name)).st_dev == device]
        inside = any(place == path or place.startswith(path + b"/") for path in whole)
        for path in (os.path.join(place, name) for name in (*folders, *files)):
            about = os.lstat(path)
            if inside or about.st_uid or about.st_gid:
                parts = os.path.relpath(path, top).split(b"/")
                names.update((b"./" + b"/".join(parts[:number]), None) for number in range(1, len(parts) + 1))
                if not inside and stat.S_ISDIR(about.st_mode):
                    whole.append(path)
    return Copied(list(names), [os.path.relpath(path, top) for path in whole])


def _mount(user: int, folder: str, place: str) -> None:
    """Mount a folder at a place, read-only, with root's files owned by a user."""
    owners = _owners(user)
    try:
        tree = _call(_OPEN_TREE, _HERE, folder.encode(), _CLONE | os.O_CLOEXEC)
        wanted = struct.pack("QQQQ", _OWNERS | _READ_ONLY, 0, 0, owners)
        _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, wanted, len(wanted))
        _call(_MOVE_MOUNT, tree, b"", _HERE, place.encode(), _MOVE_EMPTY_PATH)
    finally:
        os.close(owners)


def _owners(user: int) -> int:
    """A descriptor of a user namespace in which root is a user of this machine."""
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        failed = ctypes.CDLL(None).unshare(_NEW_USERS)
        os.write(ready[1], b"0" if failed else b"1")
        os.read(done[0], 1)
        os._exit(0)
    try:
        if os.read(ready[0], 1) != b"1":
            raise OSError("cannot make a user namespace")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {user} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.write(done[1], b".")
        os.waitpid(child, 0)


def _call(number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(number), *words))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


_LIBC = ctypes.CDLL(None, use_errno=True)

if __name__ == "__main__":
    for _folder, _place in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        _mount(int(sys.argv[1]), _folder, _place)
