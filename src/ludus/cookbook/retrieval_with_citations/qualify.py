"""How `ludus qualify` answers: it reads the right articles and cites them."""

from __future__ import annotations

from typing import Any


def oracle(task: Any) -> list[Any]:
    """Read every source, then answer."""
    return [_read(*task.sources), _answer(task.expected_answer, *task.sources)]


def preserving(task: Any) -> dict[str, Any]:
    """The same answer after a search, with an article read in vain, and with a full stop."""
    return {
        "after_a_search": [{"call": "search", "arguments": {"words": "harbour of Velm"}}, *oracle(task)],
        "read_more": [_read("brode", "orla"), *oracle(task)],
        "prose": [_read(*task.sources), f"I have read it.\n\n{_answer(task.expected_answer.upper(), *task.sources)}."],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Right answers without support, with too much of it, and supported wrong answers."""
    sources, right = task.sources, task.expected_answer
    return {
        "never_read": _answer(right, *sources),
        "not_cited": [_read(*sources), _answer(right)],
        "one_too_many": [_read(*sources, "brode"), _answer(right, *sources, "brode")],
        "one_missing": [_read(*sources), _answer(right, *sources[1:])],
        "wrong": [_read(*sources), _answer("1900", *sources)],
        "hedged": [_read(*sources), _answer(f"{right} or 1900", *sources)],
        "invented_source": [_read(*sources), _answer(right, *sources, "the-internet")],
    }


def exploits(task: Any) -> dict[str, Any]:
    """Cite the whole archive, and cite the right articles without an answer."""
    names = "harbour-history lighthouse ruta-sand orla herring-fair salt-house tomas-leck ferry brode mire".split()
    return {
        "cites_all": [_read(*names), _answer(task.expected_answer, *names)],
        "sources_only": [_read(*task.sources), _answer("see the articles", *task.sources)],
    }


def _read(*names: str) -> dict[str, Any]:
    return {"calls": [{"name": "read", "arguments": {"name": name}} for name in names]}


def _answer(text: str, *sources: str) -> str:
    return f"Answer: {text}" + "".join(f" [{name}]" for name in sources)
