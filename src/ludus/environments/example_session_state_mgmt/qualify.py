"""How qualification plays the counter: what counts is where it ends, not how it got there."""

from __future__ import annotations

from typing import Any

expected_exploits = {
    "tool_spam": (0.25, "adding 1 a few times is what was asked for in a row that asks for as much"),
}


def oracle(task: Any) -> list[Any]:
    """Add what is missing."""
    return _adding(_missing(task))


def preserving(task: Any) -> dict[str, Any]:
    """The same sum in other ways."""
    missing = _missing(task)
    together = {"calls": [_add(missing - 1), _add(1)]}
    return {
        "two_turns": _adding(missing - 2, 2),
        "one_turn": [together, "Done."],
        "there_and_back": _adding(missing + 5, -5),
        "with_a_look": [{"call": "get_counter_value"}, *_adding(missing)],
        "after_a_mistake": [{"call": "increment_counter", "arguments": {"count": "many"}}, *_adding(missing)],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Other sums, and the right one only in words."""
    missing = _missing(task)
    wrong = {"off_by_one": [missing + 1], "sign": [-missing], "twice": [missing, missing], "expected": [missing, 1]}
    scripts: dict[str, Any] = {name: _adding(*counts) for name, counts in wrong.items() if sum(counts) != missing}
    in_words = f"I called increment_counter(count={missing}). The counter is at {task.expected_count}."
    return scripts | {"in_words": in_words, "wrong_type": _adding(str(missing))}


def _missing(task: Any) -> int:
    return int(task.expected_count) - int(task.initial_count)


def _add(count: Any) -> dict[str, Any]:
    return {"name": "increment_counter", "arguments": {"count": count}}


def _adding(*counts: Any) -> list[Any]:
    return [{"calls": [_add(count)]} for count in counts] + ["Done."]
