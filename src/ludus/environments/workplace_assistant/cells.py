"""What `reference.py` runs in a child process, in a module of its own so that the child has little to import."""

from __future__ import annotations

import re


def search(pattern: str, rows: list[list[str]]) -> list[bool]:
    """Which rows hold a cell that the pattern matches, whatever the letter case."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return [any(compiled.search(cell) for cell in cells) for cells in rows]
