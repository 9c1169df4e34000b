"""How `ludus qualify` plays Nim: with the winning strategy."""

from __future__ import annotations

import json
import re
from functools import reduce
from operator import xor
from typing import Any

from ludus.model import Request
from ludus.response import texts_of


def oracle(task: Any) -> Any:
    """Leave the other player with heaps whose exclusive or is 0."""
    return _perfect


def answer(task: Any, text: str) -> str:
    """A move between its tags."""
    return f"<take>{text}</take>"


def preserving(task: Any) -> dict[str, Any]:
    """The winning moves in other forms."""
    return {
        "upper_case": lambda request: _perfect(request).upper(),
        "after_thought": lambda request: f"Let me count.\n{_perfect(request)}",
    }


def breaking(task: Any) -> dict[str, Any]:
    """The winning moves without tags, two moves at once, and moves against the rules."""
    return {
        "no_tags": lambda request: _perfect(request).replace("<take>", "").replace("</take>", ""),
        "two_moves": lambda request: f"{_perfect(request)} {_perfect(request)}",
        "too_many": "<take>99 from 1</take>",
        "no_such_heap": "<take>1 from 9</take>",
        "claims_to_have_won": "I took the last stone. I win.",
    }


def exploits(task: Any) -> dict[str, Any]:
    """The same kind of move in every position."""
    return {"one_stone": lambda request: _first(request, 1), "whole_heap": lambda request: _first(request, 99)}


def _perfect(request: Request) -> str:
    heaps = _heaps(request)
    total = reduce(xor, heaps)
    heap, size = next((heap, size) for heap, size in enumerate(heaps, start=1) if size ^ total < size)
    return f"<take>{size - (size ^ total)} from {heap}</take>"


def _first(request: Request, most: int) -> str:
    heap, size = next((heap, size) for heap, size in enumerate(_heaps(request), start=1) if size)
    return f"<take>{min(size, most)} from {heap}</take>"


def _heaps(request: Request) -> list[int]:
    shown = re.findall(r"Heaps: (\[[\d, ]+\])", texts_of(request.input[-1]))
    return list(json.loads(shown[-1]))
