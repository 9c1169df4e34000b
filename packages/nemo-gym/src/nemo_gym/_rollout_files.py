"""One file of JSON lines for each rollout. Ids of rollouts come from URLs, so they are checked before use."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import orjson

_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def rollout_file(folder: Path, rollout_id: str, suffix: str) -> Path:
    """The file of a rollout; `ValueError` for an id that is no plain file name."""
    if _ID.fullmatch(rollout_id) is None:
        raise ValueError(f"rollout id {rollout_id!r} may hold only letters, digits, '.', '_' and '-', at most 200")
    return folder / f"{rollout_id}{suffix}"


def append_line(path: Path, value: Any) -> None:
    """Add a line. It is on the disk when the function returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(orjson.dumps(value) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[Any]:
    """The values of a file; those of torn lines are None. Empty if there is no file."""
    return [_value(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def _value(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
