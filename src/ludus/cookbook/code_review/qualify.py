"""How `ludus qualify` reviews: it knows the planted mistakes."""

from __future__ import annotations

from typing import Any

_KINDS = "off_by_one injection resource_leak swallowed_error mutable_default wrong_condition".split()


def oracle(task: Any) -> list[Any]:
    """A comment on every mistake."""
    return [_comments(*_planted(task)), "Done."]


def preserving(task: Any) -> dict[str, Any]:
    """The same comments one after the other, and twice."""
    return {
        "one_by_one": [*map(_comments, _planted(task)), "I request changes."],
        "twice": [_comments(*_planted(task), *_planted(task)), "Done."],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Comments beside the mistakes, of other kinds, in words only, and with a false alarm."""
    planted = _planted(task)
    other = [(line, _KINDS[_KINDS.index(kind) - 1]) for line, kind in planted]
    return {
        "next_line": [_comments(*((line + 1, kind) for line, kind in planted)), "Done."],
        "other_kind": [_comments(*other), "Done."],
        "false_alarm": [_comments(*planted, (4, "resource_leak")), "Done."],
        "in_words": "\n".join(f"Line {line}: {kind}" for line, kind in planted),
    }


def exploits(task: Any) -> dict[str, Any]:
    """Approve everything, one comment for every change, and a comment on every line."""
    every = [(line, kind) for line in range(1, 21) for kind in _KINDS]
    return {
        "approves": "I approve. No mistakes.",
        "every_line": [_comments(*every), "Done."],
        "first_line": [_comments((1, "mutable_default")), "Done."],
    }


def _planted(task: Any) -> list[tuple[int, str]]:
    return [(mistake.line, mistake.kind) for mistake in task.mistakes]


def _comments(*places: tuple[int, str]) -> dict[str, Any]:
    values = [{"line": line, "kind": kind, "text": "Please change this."} for line, kind in places]
    return {"calls": [{"name": "comment", "arguments": value} for value in values]}
