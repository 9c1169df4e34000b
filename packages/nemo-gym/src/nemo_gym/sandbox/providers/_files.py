"""Files of this machine that go into a sandbox or come out of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def mode_of(path: Path) -> str:
    """The permissions of a file, as `chmod` takes them."""
    return f"{path.stat().st_mode & 0o777:o}"


def absolute(path: Path) -> str:
    """The absolute path of a file or folder. Raises `FileNotFoundError` if there is none."""
    if not path.exists():
        raise FileNotFoundError(f"cannot upload {path}: there is no such file")
    return str(path.absolute())


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """A file that goes into a sandbox."""
    with path.open("rb") as file:
        yield file


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file that comes out of a sandbox. It is removed if the copy fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise
