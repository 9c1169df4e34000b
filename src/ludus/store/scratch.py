"""Temporary files for work that does not fit in memory. They have no name and vanish with the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Self

from ludus.errors import UserError


class Scratch:
    """Temporary files that are closed together.

    with Scratch("ludus-merge-") as scratch:
        file = scratch.file()
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):  # closing a file writes its buffer, for which a full disk has no room
            self._stack.close()

    def file(self, buffer: int = -1) -> IO[bytes]:
        """A new, empty file."""
        return self._stack.enter_context(tempfile.TemporaryFile(buffering=buffer, prefix=self._prefix))


def full_disk(error: OSError) -> UserError:
    """The error to raise for an error of a temporary file: one line that names the folder."""
    cause = f"cannot write a temporary file in {tempfile.gettempdir()}: {error.strerror}"
    return UserError(cause, "Set TMPDIR to a folder with more room")


@contextmanager
def explains_full_disk() -> Iterator[None]:
    """Raise `full_disk` for every error of the system in the block."""
    try:
        yield
    except OSError as error:
        raise full_disk(error) from error
