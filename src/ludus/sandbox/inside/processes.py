"""The processes that descend from this one, and the memory that they use."""

from __future__ import annotations

import os
import resource

from ludus.sandbox.inside.relay import Relay


def used_memory(relay: Relay) -> int:
    """The resident memory of the processes that descend from this one."""
    pages = 0
    for pid in descendants(relay):
        try:
            with open(f"/proc/{pid}/statm") as file:
                pages += int(file.read().split()[1])
        except (OSError, IndexError):
            pass
    return pages * resource.getpagesize()


def descendants(relay: Relay) -> set[int]:
    """The processes that descend from this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = relay.parent_of(int(name))
            except (OSError, IndexError, ValueError):
                pass
    known: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - known
        known |= new
    return known


def prefer_oom_kill() -> None:
    """Let the kernel kill this process and its children before the supervisor if memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # Landlock may forbid it: the host then sees why the sandbox died
        pass
