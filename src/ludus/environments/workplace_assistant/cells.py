"""The search that `reference.py` runs in a child process. It is a separate module so that the child imports little."""

from __future__ import annotations

import re


def search(pattern: str, rows: list[list[str]]) -> list[bool]:
    """For each row, whether the pattern matches one of its cells, ignoring case."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return [any(compiled.search(cell) for cell in cells) for cells in rows]
