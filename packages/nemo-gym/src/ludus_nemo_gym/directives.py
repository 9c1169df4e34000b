"""Directives build one part of a configuration from another. They are applied once everything is merged.

| directive | effect |
| --- | --- |
| `_inherit_from: a.b`, or the value `${inherit_from:a.b}` | moves a.b here; the keys beside the directive override it |
| `_copy: a.b`, or the value `${copy:a.b}` | the same, but a.b stays where it was too |
| `_delete_key: "x,y"` | deletes keys beside it, after the other directives |
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.trees import Tree, merge, remove, step_into, steps_of

INHERIT, COPY, DELETE = "_inherit_from", "_copy", "_delete_key"
_AS_VALUE = re.compile(r"\s*\$\{\s*(inherit_from|copy)\s*:\s*([^${}]+?)\s*\}\s*")


@dataclass
class Applied:
    """A tree without directives. `moved` maps each path that `_inherit_from` emptied to its new path."""

    tree: Tree
    moved: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def directives_as_keys(tree: Any) -> Any:
    """The same tree with directives as keys instead of values, so that a mapping merged over one keeps it."""
    if isinstance(tree, dict):
        return {key: directives_as_keys(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [directives_as_keys(item) for item in tree]
    if isinstance(tree, str) and (match := _AS_VALUE.fullmatch(tree)) is not None:
        return {INHERIT if match[1] == "inherit_from" else COPY: match[2]}
    return tree


def apply_directives(tree: Tree) -> Applied:
    """Apply every directive of a merged tree."""
    expansion = _Expansion(directives_as_keys(tree))
    result = expansion.expand(expansion.tree, "")
    for path in expansion.moved:
        remove(result, steps_of(path))
    return Applied(result, expansion.moved, expansion.notes)


class _Expansion:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.moved: dict[str, str] = {}
        self.notes: list[str] = []
        self._open: list[str] = []

    def expand(self, node: Any, path: str) -> Any:
        """A node with the directives in it and below it applied."""
        if isinstance(node, list):
            return [self.expand(item, f"{path}.{index}") for index, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        beside: Any = {
            key: self.expand(value, f"{path}.{key}".lstrip("."))
            for key, value in node.items()
            if key not in (INHERIT, COPY, DELETE)
        }
        for directive in (COPY, INHERIT):
            if directive in node:
                beside = self._merged(beside, str(node[directive]), directive, path)
        if DELETE in node:
            self._delete(beside, node[DELETE], path)
        return beside

    def _merged(self, beside: Any, source: str, directive: str, path: str) -> Any:
        """The source of a directive, overridden by the keys beside the directive."""
        inherited = self._source(source, directive, path)
        if directive == INHERIT:
            self.moved.setdefault(".".join(steps_of(source)), path)
        if isinstance(inherited, dict) and isinstance(beside, dict):
            return merge(inherited, beside)
        if beside:
            raise UserError(f"{path}: {directive}: {source} is not a mapping, so the keys beside it cannot be merged")
        return inherited

    def _source(self, source: str, directive: str, path: str) -> Any:
        """A copy of the node that a directive names, with that node's directives applied."""
        steps = steps_of(source)
        name = ".".join(steps)
        if not steps or name in self._open:
            circle = " -> ".join([path, *self._open, name])
            raise UserError(f"{path}: {directive}: {source} leads back to itself", f"The circle is {circle}")
        self._open.append(name)
        try:
            node, walked = self.tree, ""
            for step in steps:
                if isinstance(node, dict) and {INHERIT, COPY} & node.keys():
                    node = self.expand(node, walked)
                try:
                    node = step_into(node, step)
                except KeyError:
                    known = node if isinstance(node, dict) else []
                    raise UserError(f"{path}: {directive}: there is no {source}", did_you_mean(step, known)) from None
                walked = f"{walked}.{step}".lstrip(".")
            return copy.deepcopy(self.expand(node, walked))
        finally:
            self._open.pop()

    def _delete(self, node: Any, names: Any, path: str) -> None:
        keys = names if isinstance(names, list) else str(names).split(",")
        for key in (str(name).strip() for name in keys):
            if not isinstance(node, dict) or not key or not remove(node, steps_of(key)):
                self.notes.append(f"{path}: {DELETE}: there is no {key}")
