"""The processes that descend from this one, and the memory that they use."""

from __future__ import annotations

import os
import resource


def used_memory() -> int:
    """The resident memory of the processes that descend from this one."""
    pages = 0
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/statm") as file:
                pages += int(file.read().split()[1])
        except (OSError, IndexError):
            pass
    return pages * resource.getpagesize()


def descendants() -> set[int]:
    """The processes that descend from this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                pass
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found
