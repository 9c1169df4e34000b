"""Directives that build one part of a configuration from another, applied once everything is merged.

| directive | does |
| --- | --- |
| `_inherit_from: a.b`, or the value `${inherit_from:a.b}` | puts a.b under what stands here, and takes it away there |
| `_copy: a.b`, or the value `${copy:a.b}` | the same, and leaves it there too |
| `_delete_key: "x,y"` | drops keys from where it stands, after the others |
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
    """A tree without directives. `moved` says of each path that is gone which one it went to."""

    tree: Tree
    moved: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def written_out(tree: Any) -> Any:
    """The same tree with directives as keys and not as values, so that what is merged over one keeps it."""
    if isinstance(tree, dict):
        return {key: written_out(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [written_out(item) for item in tree]
    if isinstance(tree, str) and (found := _AS_VALUE.fullmatch(tree)) is not None:
        return {INHERIT if found[1] == "inherit_from" else COPY: found[2]}
    return tree


def apply_directives(tree: Tree) -> Applied:
    """Carry out every directive of a merged tree."""
    work = _Work(written_out(tree))
    result = work.expand(work.tree, "")
    for path in work.moved:
        remove(result, steps_of(path))
    return Applied(result, work.moved, work.notes)


class _Work:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.moved: dict[str, str] = {}
        self.notes: list[str] = []
        self._busy: list[str] = []

    def expand(self, node: Any, path: str) -> Any:
        """A node with the directives in it and below it carried out."""
        if isinstance(node, list):
            return [self.expand(item, f"{path}.{index}") for index, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        own: Any = {
            key: self.expand(value, f"{path}.{key}".lstrip("."))
            for key, value in node.items()
            if key not in (INHERIT, COPY, DELETE)
        }
        for directive in (COPY, INHERIT):
            if directive in node:
                own = self._under(own, str(node[directive]), directive, path)
        if DELETE in node:
            self._delete(own, node[DELETE], path)
        return own

    def _under(self, own: Any, source: str, directive: str, path: str) -> Any:
        found = self._source(source, directive, path)
        if directive == INHERIT:
            self.moved.setdefault(".".join(steps_of(source)), path)
        if isinstance(found, dict) and isinstance(own, dict):
            return merge(found, own)
        if own:
            raise UserError(f"{path}: {directive}: {source} is no mapping and cannot be merged with what stands here")
        return found

    def _source(self, source: str, directive: str, path: str) -> Any:
        """A copy of what a directive names, with its own directives carried out."""
        steps = steps_of(source)
        name = ".".join(steps)
        if not steps or name in self._busy:
            circle = " -> ".join([*self._busy, name])
            raise UserError(f"{path}: {directive}: {source} leads back to itself", f"The way is {path} -> {circle}")
        self._busy.append(name)
        try:
            node, gone = self.tree, ""
            for step in steps:
                if isinstance(node, dict) and {INHERIT, COPY} & node.keys():
                    node = self.expand(node, gone)
                try:
                    node = step_into(node, step)
                except KeyError:
                    known = node if isinstance(node, dict) else []
                    what = f"{path}: {directive}: there is no {source}"
                    raise UserError(what, did_you_mean(step, known)) from None
                gone = f"{gone}.{step}".lstrip(".")
            return copy.deepcopy(self.expand(node, gone))
        finally:
            self._busy.pop()

    def _delete(self, own: Any, names: Any, path: str) -> None:
        keys = names if isinstance(names, list) else str(names).split(",")
        for key in (str(each).strip() for each in keys):
            if not isinstance(own, dict) or not key or not remove(own, steps_of(key)):
                self.notes.append(f"{path}: {DELETE}: there is no {key}")
