"""Hydra's overrides on a command line: `+key=value`, `++key=value`, `key=value` and `~key`, with dots in keys.

OmegaConf's grammar reads the values: null, a boolean, a number, a `[list]`, a `{mapping: 1}`, a text in quotes or a
text without. The first three forms mean the same, because there is no base configuration that could lack the key.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterable
from typing import Any

import orjson
from omegaconf.errors import GrammarParseError
from omegaconf.grammar_parser import parse
from omegaconf.grammar_visitor import GrammarVisitor

from ludus.errors import UserError
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.trees import Tree, merge, plain

_KEY = r"(?P<key>[^\s=+~\[\]{}.-][^\s=+~\[\]{}.]*(\.[^\s=+~\[\]{}.]+)*)"
_ASSIGNMENT = re.compile(rf"\+{{0,2}}{_KEY}=(?P<value>.*)", re.DOTALL)
_DELETION = re.compile(rf"~{_KEY}")


def parse_overrides(arguments: Iterable[str]) -> Tree:
    """The tree that the assignments of a command line describe. Of two values for a key the later one wins."""
    trees: list[Tree] = []
    for argument in arguments:
        if _DELETION.fullmatch(argument):
            continue
        match = _ASSIGNMENT.fullmatch(argument)
        if match is None:
            raise UserError(f"{_shown(argument)} must look like +key=value", "Example: +limit=4")
        try:
            value = parse_value(match["value"])
        except UserError as error:
            raise UserError(f"+{match['key']}: {error}") from error
        for step in reversed(match["key"].split(".")):
            value = {step: value}
        trees.append(value)
    return merge(*trees)


def deleted_keys(arguments: Iterable[str]) -> list[str]:
    """The keys that `~key` takes out of the configuration."""
    return [match["key"] for argument in arguments if (match := _DELETION.fullmatch(argument)) is not None]


def parse_value(text: str) -> Any:
    """One value: `4`, `1e-3`, `true`, `null`, `[a, b]`, `{a: 1}`, `'a, b'`, or a text that needs no quotes."""
    # In brackets, because the grammar strips spaces only around the items of a list. A single backslash at the end is
    # doubled: it would escape the bracket.
    single = (len(text) - len(text.rstrip("\\"))) % 2
    source = "[" + text + "\\" * single + "]"
    try:
        values = _Values(None, None, None).visit(parse(source, parser_rule="singleElement", lexer_mode="VALUE_MODE"))
    except (GrammarParseError, RecursionError) as error:
        return _other_value(text.strip(), error)
    if len(values) > 1:
        raise UserError("a list stands in brackets and a text with a comma in quotes", "Example: '+key=[a,b]'")
    return plain(values[0]) if values else ""


def _other_value(text: str, error: Exception) -> Any:
    """A value that OmegaConf's grammar refuses: JSON with its quoted keys, or a text with signs such as `=` or `é`."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    if "${" in text:
        hint = "Write ${key}, and put single quotes around the whole override"
        raise UserError("cannot read the ${...}", hint) from error
    if text.startswith(("[", "{", "'", '"')) or "," in text:
        hint = "Put a text in quotes, write an empty one as '', and put quotes around the whole override too"
        raise UserError("cannot read the value", hint) from error
    return text


class _Values(GrammarVisitor):
    """Reads values as Hydra does: `${...}` stays as typed, because it is resolved after everything is merged."""

    def visitInterpolation(self, ctx: Any) -> str:
        return _typed(ctx)

    def visitQuotedValue(self, ctx: Any) -> str:
        text = _typed(ctx)
        slashes = re.compile(rf"\\+(?={text[0]}|\Z)")  # elsewhere a backslash is itself
        return slashes.sub(lambda match: "\\" * (len(match[0]) // 2), text[1:-1])

    def visitSequence(self, ctx: Any) -> Generator[Any, None, None]:
        if ctx.getChildCount() != 2 * len(ctx.element()) - 1:
            raise UserError("a value is missing beside a comma", "Write an empty text as ''")
        return super().visitSequence(ctx)


def _typed(ctx: Any) -> str:
    text: str = ctx.start.getInputStream().getText(ctx.start.start, ctx.stop.stop)
    return text


def _shown(argument: str) -> str:
    """An override for an error message: short, and without the value of a secret key."""
    key, equals, _ = argument.partition("=")
    if is_secret_key(key.lstrip("+~").rpartition(".")[2]):
        return f"{key}{equals}***"
    return argument if len(argument) <= 80 else argument[:77] + "..."
