"""Threads: the conversations of a rollout beside its main one.

A program that drives a rollout may hold several conversations with the model: sub-agents, and side calls such as a
title for the session. `response` and `calls` of a rollout are the main thread; each other thread has its own items and
its own token ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ludus.dialects.conversion import Item

#: What a sequence of tokens belongs to. `main` is the rollout's own conversation, and `compacted` what it became after
#: the program rewrote its history. `agent` is a sub-agent, `side` a call that serves the program and not the task.
ThreadKind = Literal["main", "compacted", "agent", "side"]

#: The kinds that are trained on, unless asked for others.
TRAINED: tuple[ThreadKind, ...] = ("main", "compacted", "agent")

MAIN = "main"


@dataclass(slots=True)
class Thread:
    """One conversation beside the main one: everything that the model read and wrote, and its calls.

    `parent` is the thread whose tool call opened this one, `tools` what its first call was offered. An entry of
    `calls` is as in `Rollout.calls`, with `at`, the index of its first item.
    """

    name: str
    kind: ThreadKind
    parent: str | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def to_row(self) -> dict[str, Any]:
        """The thread as an entry of a record's `threads`."""
        row: dict[str, Any] = {"name": self.name, "kind": self.kind, "parent": self.parent}
        if self.instructions is not None:
            row["instructions"] = self.instructions
        return {**row, "tools": self.tools, "items": self.items, "model_calls": self.calls}

    @classmethod
    def from_row(cls, row: Any) -> Thread | None:
        """Read an entry of a record's `threads`; None if it is malformed."""
        if not isinstance(row, dict):
            return None
        items, calls, tools = (row.get(key) for key in ("items", "model_calls", "tools"))
        lists = [part for part in (items, calls, tools or []) if isinstance(part, list)]
        if len(lists) < 3 or not all(isinstance(entry, dict) for part in lists for entry in part):
            return None
        name, kind = row.get("name"), row.get("kind")
        if not isinstance(name, str) or kind not in (*TRAINED, "side"):
            return None
        return cls(name, kind, row.get("parent"), row.get("instructions"), lists[2], lists[0], lists[1])


def read_threads(row: dict[str, Any]) -> list[Thread]:
    """The threads in a record. Those that are malformed, as in rows of other programs, are left out."""
    entries = row.get("threads")
    if not entries or not isinstance(entries, list):
        return []
    return [thread for entry in entries if (thread := Thread.from_row(entry)) is not None]
