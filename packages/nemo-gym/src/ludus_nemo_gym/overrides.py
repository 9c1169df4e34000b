"""Overrides as Hydra writes them on a command line: `+key=value`, `++key=value`, `key=value`, with dots in keys.

A value is null, a boolean, a number, a `[list]`, a `{mapping:1}`, a text in quotes, or else the text that it is. The
three ways to begin mean the same here, because there is no base configuration that a key could be missing from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ludus.errors import UserError
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.trees import Tree, merge, put

_ASSIGNMENT = re.compile(r"(?P<how>\+{0,2})(?P<key>[^\s=+~\[\]{}-][^\s=+~\[\]{}]*)=(?P<value>.*)", re.DOTALL)
_INT = re.compile(r"[+-]?(0|[1-9](_?[0-9])*)")
_FLOAT = re.compile(
    r"[+-]?([0-9](_?[0-9])*\.([0-9](_?[0-9])*)?|\.[0-9](_?[0-9])*|[0-9](_?[0-9])*(?=[eE]))([eE][+-]?[0-9](_?[0-9])*)?"
)
_NOT_FINITE = re.compile(r"([+-]?inf|nan)", re.IGNORECASE)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
#: What a backslash takes the meaning from, in a text without quotes.
_SPECIAL = "\\()[]{}:=, \t"
_DEEPEST = 50

#: What opens and closes while the end of a `${...}` is looked for.
BRACES = re.compile(r"[{}]")


def parse_overrides(arguments: Iterable[str]) -> Tree:
    """The tree that a command line describes. Of two values for the same key the later one stays."""
    tree: Tree = {}
    for argument in arguments:
        key, value = parse_override(argument)
        one: Tree = {}
        put(one, key, value)
        tree = merge(tree, one)
    return tree


def parse_override(argument: str) -> tuple[list[str], Any]:
    """The key, taken apart at its dots, and the value of one override."""
    found = _ASSIGNMENT.fullmatch(argument)
    parts = found["key"].split(".") if found else [""]
    if found is None or not all(parts):
        raise UserError(f"{_shown(argument)} must look like +key=value", "Example: +limit=4")
    try:
        return parts, parse_value(found["value"])
    except UserError as error:
        shown = f"+{found['key']}" if is_secret_key(parts[-1]) else _shown(argument)
        raise UserError(f"{shown}: {error}") from error


def parse_value(text: str) -> Any:
    """One value: `4`, `1e-3`, `true`, `null`, `[a, b]`, `{a: 1}`, `'a, b'`, or a text that needs no quotes."""
    return _Reader(text).whole()


class _Reader:
    """Reads one value from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def whole(self) -> Any:
        self.skip_spaces()
        if self.at == len(self.text):
            return ""
        value = self.value("")
        self.skip_spaces()
        if self.peek() == ",":
            raise UserError("a list stands in brackets and a text with a comma in quotes", "Example: '+key=[a,b]'")
        if self.at < len(self.text):
            raise UserError(f"cannot read {self.text[self.at :]!r:.40} after the value", "Put a text in quotes")
        return value

    def value(self, ends: str) -> Any:
        """A value that ends where the text does or before one of `ends`."""
        self.skip_spaces()
        first = self.peek()
        if first in ("[", "{"):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise UserError(f"brackets are nested deeper than {_DEEPEST}")
            inner: Any = self.items() if first == "[" else self.pairs()
            self.depth -= 1
            return inner
        if first in ("'", '"'):
            return self.quoted()
        return _meaning(self.plain(f"{ends},"))

    def items(self) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        while not self.closes("]", empty=not found):
            found.append(self.element("]"))
        return found

    def pairs(self) -> Tree:
        self.at += 1
        found: Tree = {}
        while not self.closes("}", empty=not found):
            self.skip_spaces()
            key = self.quoted() if self.peek() in ("'", '"') else self.plain(":,}")
            self.skip_spaces()
            if self.peek() != ":" or not key:
                raise UserError("a mapping is written {key: value}", "Example: '+key={a: 1, b: 2}'")
            self.at += 1
            found[key] = self.element("}")
        return found

    def element(self, end: str) -> Any:
        """One entry of a list or of a mapping, which must be there."""
        self.skip_spaces()
        if self.peek() in ("", ",", end):
            raise UserError("a value is missing", "Write an empty text as ''")
        value = self.value(end)
        self.skip_spaces()
        if self.peek() not in (",", end):
            raise UserError(f"a {end} is missing", "Put a text in quotes, and the whole override too")
        return value

    def closes(self, end: str, empty: bool) -> bool:
        """Whether the brackets end here; otherwise the comma before the next entry is passed."""
        self.skip_spaces()
        if self.peek() == end:
            self.at += 1
            return True
        if self.peek() == "":
            raise UserError(f"a {end} is missing", "Put the whole override in quotes")
        if not empty:
            self.at += 1
        return False

    def quoted(self) -> str:
        """A text in quotes. A backslash means something only where it, or several of them, stand before a quote."""
        quote = self.peek()
        self.at += 1
        parts: list[str] = []
        while True:
            found = re.compile(rf"(\\*){quote}").search(self.text, self.at)
            if found is None:
                raise UserError(f"a closing {quote} is missing", "Put the whole override in the other kind of quotes")
            slashes = len(found[1])
            parts += [self.text[self.at : found.start()], "\\" * (slashes // 2)]
            self.at = found.end()
            if slashes % 2 == 0:
                return "".join(parts)
            parts.append(quote)

    def plain(self, ends: str) -> str:
        """A text without quotes up to one of `ends`."""
        parts: list[str] = []
        kept = 0  # spaces at the end go, unless a backslash holds them
        while (sign := self.peek()) and sign not in ends:
            if sign == "$" and self.text.startswith("${", self.at):
                parts.append(self.interpolation())
            elif sign == "\\" and self.text[self.at + 1 : self.at + 2] in tuple(_SPECIAL):
                parts.append(self.text[self.at + 1])
                kept, self.at = len(parts), self.at + 2
            else:
                parts.append(sign)
                self.at += 1
        return "".join(parts[:kept]) + "".join(parts[kept:]).rstrip()

    def interpolation(self) -> str:
        """`${...}` as it stands, whatever is inside: it is resolved when everything has been merged."""
        start, depth = self.at, 0
        for found in BRACES.finditer(self.text, start):
            depth += -1 if found[0] == "}" else 1
            if depth == 0:
                self.at = found.end()
                return self.text[start : self.at]
        raise UserError("a } is missing after ${", "Put the whole override in single quotes")

    def skip_spaces(self) -> None:
        while self.peek() in (" ", "\t", "\n", "\r"):
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]


def _meaning(text: str) -> Any:
    """What a text without quotes stands for."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text)
    return text


def _shown(argument: str) -> str:
    """An override for an error message: short, and not the value of a key that is secret."""
    key, equals, _ = argument.partition("=")
    if is_secret_key(key.lstrip("+~").rpartition(".")[2]):
        return f"{key}{equals}***"
    return argument if len(argument) <= 80 else argument[:77] + "..."
