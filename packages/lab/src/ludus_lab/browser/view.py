"""What a solver sees of a page, and the actions that it can take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ludus_lab.browser.tree import Node

Action = dict[str, Any]


@dataclass(frozen=True)
class View:
    """What a solver sees: the elements at first and now, and the number of actions so far."""

    first: list[Node]
    now: list[Node]
    step: int

    @property
    def query(self) -> str:
        """The page's instruction."""
        return next(node.label for node in self.first if node.label)

    @property
    def quoted(self) -> list[str]:
        """The texts between quotation marks in the instruction."""
        return re.findall(r'"(.*?)"(?=[\s.,]|$)', self.query)

    def all(self, *roles: str) -> list[Node]:
        """The elements of these roles now, in order."""
        return [node for node in self.now if node.role in roles and node.ref]

    def at_first(self, *roles: str) -> list[Node]:
        """The elements of these roles at first."""
        return [node for node in self.first if node.role in roles and node.ref]

    def named(self, label: str, *roles: str) -> Node:
        """The element with this label. The instruction itself is none."""
        nodes = [node for node in self.now if node.ref and node.label == label and (not roles or node.role in roles)]
        return nodes[0]


def click(node: Node) -> Action:
    """A click on an element."""
    return {"call": "click", "arguments": {"ref": node.ref}}


def fill(node: Node, text: str) -> Action:
    """A text into a field."""
    return {"call": "type", "arguments": {"ref": node.ref, "text": text}}


def press(key: str) -> Action:
    """A key."""
    return {"call": "press", "arguments": {"key": key}}


def drag(start: tuple[int, int], end: tuple[int, int]) -> Action:
    """A drag from one point to another."""
    return {"call": "drag", "arguments": dict(zip(("from_x", "from_y", "to_x", "to_y"), (*start, *end), strict=True))}


LOOK: Action = {"call": "look", "arguments": {}}


def submit(view: View) -> Action:
    """A click on the button `Submit`."""
    return click(view.named("Submit", "button", "generic"))


def ordinal(text: str) -> int:
    """The index that an ordinal number in a text names: 0 for 1st."""
    match = re.search(r"(\d+)(?:st|nd|rd|th)", text)
    assert match is not None
    return int(match[1]) - 1
