"""Files that appear when they are complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ludus.errors import UserError


@contextlib.contextmanager
def draft(path: Path, hint: str) -> Iterator[BinaryIO]:
    """A draft file that replaces `path` once it is complete. `hint` says how to choose another path."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def check_new(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file unless told to."""
    if not overwrite and os.path.lexists(path):
        raise UserError(f"{path} exists already", "Add --overwrite to replace it, or choose another --output")
