"""`${...}` inside a configuration: `${key}`, `${a.b}`, `${oc.env:VAR}`, `${oc.env:VAR,default}`, nested as one likes.

A text that is one `${...}` and nothing else takes the value as it is, a mapping or a number; inside a longer text the
value is written out. `\\${` is a `${` that means nothing. Everything that has no value is collected, so that it can be
told at once; something that leads back to itself is an error.
"""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass, field
from typing import Any

from ludus.errors import UserError
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.overrides import BRACES, parse_value
from ludus_nemo_gym.trees import MISSING, Tree, step_into, steps_of

_OPENING = re.compile(r"(\\*)\$\{")
_CALL = re.compile(r"\s*([A-Za-z_][\w.]*):(.*)", re.DOTALL)
_KEY = re.compile(r"[^\s.\[\]{}$:,'\"]+(\.[^\s.\[\]{}$:,'\"]+|\[\d+\])*")


@dataclass
class Resolved:
    """A tree without `${...}`. `absent` says, for each key or variable without a value, who asked for it."""

    tree: Tree
    absent: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)


def resolve(tree: Tree) -> Resolved:
    """Replace every `${...}` by what it stands for; what stands for nothing is left as it is and told."""
    resolver = _Resolver(tree)
    return Resolved(resolver.value(tree, ""), resolver.absent, resolver.secrets)


class _Absent(Exception):
    """Something stands for nothing: `name` says what is missing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Resolver:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.absent: dict[str, str] = {}
        self.secrets: set[str] = set()
        self._known: dict[str, Any] = {}
        self._busy: list[str] = []

    def value(self, node: Any, path: str) -> Any:
        """A node and all below it, resolved. `path` is where it stands."""
        if isinstance(node, dict):
            return {key: self.value(item, f"{path}.{key}".lstrip(".")) for key, item in node.items()}
        if isinstance(node, list):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(node)]
        if not isinstance(node, str) or "${" not in node:
            return node
        try:
            return self.text(node, path)
        except _Absent as error:
            self.absent.setdefault(error.name, path)
            return node

    def text(self, text: str, path: str) -> Any:
        """What a text with `${...}` in it stands for."""
        parts: list[Any] = []
        at = 0
        while (found := _OPENING.search(text, at)) is not None:
            slashes = len(found[1])
            parts.append(text[at : found.start()] + "\\" * (slashes // 2))
            if slashes % 2:
                parts.append("${")
                at = found.end()
                continue
            end = _closing(text, found.end(), path)
            value = self.expression(text[found.end() : end], path)
            at = end + 1
            if found.start() == 0 and not slashes and at == len(text):
                return copy.deepcopy(value)
            parts.append(_written(value, path))
        return "".join([*parts, text[at:]])

    def expression(self, inside: str, path: str) -> Any:
        """What stands between `${` and `}`: a key, or a function with arguments."""
        call = _CALL.fullmatch(inside)
        if call is not None:
            if call[1] != "oc.env":
                raise UserError(
                    f"{path}: unknown function {call[1]} in ${{{inside:.60}}}", "Known: oc.env, copy, inherit_from"
                )
            return self.variable(call[2], path)
        name = str(self.text(inside, path) if "${" in inside else inside).strip()
        if not _KEY.fullmatch(name):
            raise UserError(
                f"{path}: cannot read ${{{inside:.60}}}", "Write it as ${key}, ${a.b} or ${oc.env:VARIABLE}"
            )
        return self.look_up(name, path)

    def variable(self, arguments: str, path: str) -> str | None:
        """An environment variable, always as a text, or else the default."""
        name, default = _split(arguments)
        name = str(self.text(name, path)).strip().strip("'\"")
        if not name:
            raise UserError(f"{path}: ${{oc.env:}} names no variable", "Write it as ${oc.env:VARIABLE}")
        found = os.environ.get(name)
        if found is None:
            if default is None:
                raise _Absent(f"oc.env:{name}")
            given = self.text(default.strip(), path) if "${" in default else parse_value(default)
            found = None if given is None else _written(given, path)
        if found and is_secret_key(name):
            self.secrets.add(found)
        return found

    def look_up(self, name: str, path: str) -> Any:
        """The value of a key, itself resolved."""
        if name in self._known:
            return self._known[name]
        if name in self._busy:
            circle = " -> ".join([*self._busy[self._busy.index(name) :], name])
            raise UserError(f"{path}: ${{{name}}} leads back to itself: {circle}")
        self._busy.append(name)
        try:
            self._known[name] = found = self._walk(name, path)
        except RecursionError:
            raise UserError(f"{path}: ${{{name}}} leads too far") from None
        finally:
            self._busy.pop()
        return found

    def _walk(self, name: str, path: str) -> Any:
        node: Any = self.tree
        gone = ""
        for step in steps_of(name):
            if isinstance(node, str) and "${" in node:
                node = self.text(node, gone)
            try:
                node = step_into(node, step)
            except KeyError:
                raise _Absent(name) from None
            gone = f"{gone}.{step}".lstrip(".")
        if node == MISSING:
            raise _Absent(name)
        return self._whole(node, gone)

    def _whole(self, node: Any, path: str) -> Any:
        """A node that was looked up; where it is a text, what is absent in it is absent for whoever asked."""
        return self.text(node, path) if isinstance(node, str) and "${" in node else self.value(node, path)


def _closing(text: str, start: int, path: str) -> int:
    """Where the `${` that was opened before `start` is closed."""
    depth = 1
    for found in BRACES.finditer(text, start):
        depth += -1 if found[0] == "}" else 1
        if depth == 0:
            return found.start()
    raise UserError(f"{path}: a }} is missing after ${{", "Write \\${ for a ${ that means nothing")


def _split(arguments: str) -> tuple[str, str | None]:
    """The name of a variable and its default, which begins at the first comma outside of braces."""
    depth = 0
    for found in re.finditer(r"[{},]", arguments):
        if found[0] == "," and depth == 0:
            return arguments[: found.start()], arguments[found.end() :]
        depth += {"{": 1, "}": -1, ",": 0}[found[0]]
    return arguments, None


def _written(value: Any, path: str) -> str:
    if isinstance(value, (dict, list)):
        what = f"{path}: a mapping or a list cannot stand inside a longer text"
        raise UserError(what, "Let ${...} be the whole value")
    return str(value)
