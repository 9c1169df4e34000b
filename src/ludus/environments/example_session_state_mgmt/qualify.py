"""How qualification plays the counter: only its final value counts, not the calls on the way."""

from __future__ import annotations

from typing import Any

expected_exploits = {
    "tool_spam": (0.25, "some rows ask for an increment that a few calls of 1 reach"),
}


def oracle(task: Any) -> list[Any]:
    """Add the difference between the two counts."""
    return _turns(_gap(task))


def preserving(task: Any) -> dict[str, Any]:
    """The same sum from other calls."""
    gap = _gap(task)
    together = {"calls": [_add(gap - 1), _add(1)]}
    return {
        "two_turns": _turns(gap - 2, 2),
        "one_turn": [together, "Done."],
        "there_and_back": _turns(gap + 5, -5),
        "with_a_look": [{"call": "get_counter_value"}, *_turns(gap)],
        "after_a_mistake": [{"call": "increment_counter", "arguments": {"count": "many"}}, *_turns(gap)],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Wrong sums, and a call that is only written in a message."""
    gap = _gap(task)
    wrong = {"off_by_one": [gap + 1], "sign": [-gap], "twice": [gap, gap], "expected": [gap, 1]}
    scripts: dict[str, Any] = {name: _turns(*counts) for name, counts in wrong.items() if sum(counts) != gap}
    in_words = f"I called increment_counter(count={gap}). The counter is at {task.expected_count}."
    return scripts | {"in_words": in_words, "wrong_type": _turns(str(gap))}


def _gap(task: Any) -> int:
    return int(task.expected_count) - int(task.initial_count)


def _add(count: Any) -> dict[str, Any]:
    return {"name": "increment_counter", "arguments": {"count": count}}


def _turns(*counts: Any) -> list[Any]:
    return [{"calls": [_add(count)]} for count in counts] + ["Done."]
