"""The threads of a rollout for its page: a tree of conversations, and what a program's model calls were given back.

The main thread is the rollout's own conversation. Each other one is listed with its parent. Its items are asked for
when somebody opens it.
"""

from __future__ import annotations

from typing import Any

from ludus.record import Row
from ludus.thread import Thread, read_threads
from ludus.view.facts import items_of, object_of

#: The most threads of a rollout that are listed.
MAX_THREADS = 500

#: What the response of a program's rollout counts: items that the model got as it wrote them, and saved answers.
RESTORED = ("restored_items", "kept_calls", "alike_calls", "lost_calls")


def threads_of(row: Row) -> list[dict[str, Any]]:
    """The threads beside the main one, without their items."""
    rewards = object_of(row.get("thread_rewards"))
    return [
        {
            "name": thread.name,
            "kind": thread.kind,
            "parent": thread.parent if isinstance(thread.parent, str) else None,
            "calls": len(thread.calls),
            "items": len(thread.items),
            "asked": _asked(thread),
            # items of the prompts that the model got as it wrote them, and not as the program repeated them
            "restored": sum(call["restored"] for call in thread.calls if type(call.get("restored")) is int),
            "reward": rewards.get(thread.name),
        }
        for thread in read_threads(row)[:MAX_THREADS]
    ]


def thread_items(row: Row, name: str) -> tuple[list[Row], list[Row]]:
    """The items and the model calls of a thread; nothing if there is no such thread."""
    thread = next((thread for thread in read_threads(row) if thread.name == name), None)
    if thread is None:
        return [], []
    instructions = thread.instructions
    before = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    calls = [{**call, "at": call["at"] + len(before)} for call in thread.calls if isinstance(call.get("at"), int)]
    return [*before, *thread.items], calls


def restored_counts(row: Row) -> dict[str, str]:
    """What the response counts of restored items and of answers that were saved before an interruption."""
    metadata = object_of(object_of(row.get("response")).get("metadata"))
    return {name: str(metadata[name])[:20] for name in RESTORED if name in metadata}


def _asked(thread: Thread) -> str:
    """The first lines of what the thread was asked."""
    for item in items_of(thread.items):
        content = item.get("content")
        parts = items_of(content) if isinstance(content, list) else []
        text = content if isinstance(content, str) else next((part["text"] for part in parts if "text" in part), "")
        if item.get("role") == "user" and isinstance(text, str) and text:
            return text[:160]
    return ""
