"""Folders on disk that belong to one process. The next process that starts removes those of dead owners.

The owner holds a lock on a file in its folder as long as it lives, so nobody else removes it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The programs that remove a folder.
PROGRAMS = ("rm", "chmod")


class PrivateFolder:
    """A folder of this process under the folder for temporary files. `on_orphan` gets the folder of a dead owner."""

    def __init__(self, kind: str, on_orphan: Callable[[Path], None] = lambda folder: None) -> None:
        prefix = f"ludus-{kind}-"
        _remove_orphans(prefix, on_orphan)
        new = Path(tempfile.mkdtemp(prefix=f"new-{prefix}"))  # under its final name only once it is locked
        new.chmod(0o711)
        self._lock = os.open(new / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = new.rename(new.with_name(new.name.removeprefix("new-")))

    def make(self, *names: str, owner: int | None = None) -> Path:
        """A new folder in it, with folders of these names that belong to a user."""
        folder = Path(tempfile.mkdtemp(prefix="", dir=self.path))
        folder.chmod(0o711)
        for name in names:
            (folder / name).mkdir(0o700)
            if owner is not None:
                os.chown(folder / name, owner, owner)
        return folder

    def close(self) -> None:
        """Remove the folder."""
        remove(self.path)
        os.close(self._lock)


@contextmanager
def temporary_name(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new name in a folder for a file or folder of this process, and a lock that marks it as unfinished.

    A file or folder that still has the name at the end is removed. If this process is killed, the next caller removes
    it, unless a program that inherited the lock is still at work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    path = folder / f"new-{secrets.token_hex(8)}"
    lock_path = path.with_suffix(".lock")
    lock = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path, lock
    finally:
        if path.exists():
            remove(path)
        lock_path.unlink(missing_ok=True)
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    for lock_path in folder.glob("new-*.lock"):
        with suppress(OSError):
            lock = os.open(lock_path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(lock_path.with_suffix(""))
                lock_path.unlink()
            finally:
                os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder, however deep it is and whatever the modes of the folders in it are."""
    for command in (["rm", "-rf", "--"], ["chmod", "-R", "u+rwX", "--"], ["rm", "-rf", "--"]):
        try:
            subprocess.run([*command, str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError:  # not on PATH
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _remove_orphans(prefix: str, on_orphan: Callable[[Path], None]) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                on_orphan(folder)
                remove(folder)
            finally:
                os.close(lock)
