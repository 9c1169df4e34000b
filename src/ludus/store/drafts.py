"""Files that appear when they are complete.

Whoever replaces a file writes a draft beside it first: a new file with a hidden, random name. So two writers never
share a draft, no file of the user is in its way, and no link is followed. An error removes the draft; `kill -9` leaves
it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ludus.errors import UserError

#: How much of a file's name its draft shows. A file name may have 255 bytes.
_SHOWN = 40


def draft_path(path: Path) -> Path:
    """A new, hidden name in the folder of `path`."""
    return path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}.part")


@contextlib.contextmanager
def draft(path: Path, hint: str, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A draft file that replaces `path` once it is complete. `hint` says how to choose another path.

    With `sync`, the content is on the disk before the file appears.
    """
    part = draft_path(path)
    created = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            created = True
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
        created = False
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint) from error
    finally:
        if created:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes, hint: str = "Make room or choose another --output") -> None:
    """Replace a file atomically: a reader sees the old content or the new content."""
    with draft(path, hint, sync=True) as file:
        file.write(data)


def check_new(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file unless told to."""
    if not overwrite and os.path.lexists(path):
        raise UserError(f"{path} exists already", "Add --overwrite to replace it, or choose another --output")
