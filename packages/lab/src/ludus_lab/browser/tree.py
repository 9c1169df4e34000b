"""Reads the accessibility tree that a tool returned, for solvers and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_KEY = re.compile(r'(?P<role>[\w-]+)(?: "(?P<name>(?:[^"\\]|\\.)*)")?(?P<rest>.*)', re.DOTALL)
_REF = re.compile(r"\[ref=(e\d+)\]")
_BOX = re.compile(r"\[box=(-?\d+),(-?\d+),(\d+),(\d+)\]")


@dataclass(frozen=True)
class Node:
    """An element: its role, name, own text, ref and box, and the flags in brackets, such as `selected`."""

    role: str
    name: str
    text: str
    ref: str
    box: tuple[int, int, int, int]
    flags: str

    @property
    def label(self) -> str:
        """The name, or the text of an element without a name."""
        return self.name or self.text

    @property
    def middle(self) -> tuple[int, int]:
        """The point in the middle of the box."""
        left, top, width, height = self.box
        return left + width // 2, top + height // 2


def read_tree(output: str) -> list[Node]:
    """The elements of a tree in their order, without their nesting. A line of ours before the tree is left out."""
    start = output.find("- ") if not output.startswith("error:") else output.find("\n- ") + 1
    return list(_nodes(yaml.safe_load(output[start:]) or []))


def _nodes(entries: list[Any]) -> Iterator[Node]:
    for entry in entries:
        key, value = next(iter(entry.items())) if isinstance(entry, dict) else (entry, None)
        parts = _KEY.fullmatch(str(key))
        if parts is None:
            continue
        children = value if isinstance(value, list) else []
        text = "" if value is None or children else str(value)
        ref, box = _REF.search(parts["rest"]), _BOX.search(parts["rest"])
        left, top, width, height = map(int, box.groups()) if box else (0, 0, 0, 0)
        name = (parts["name"] or "").replace('\\"', '"')
        yield Node(parts["role"], name, text, ref[1] if ref else "", (left, top, width, height), parts["rest"])
        yield from _nodes(children)
