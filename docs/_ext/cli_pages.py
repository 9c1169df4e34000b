"""The reference of the command line: every command with its arguments, options, defaults and examples."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from page_text import block, code, escape, table

from ludus.cli import command_line
from ludus.cli.help_text import example_of

#: How a value is written on the command line.
_VALUES = {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}


@dataclass(frozen=True)
class Command:
    """One command with its words, such as `ludus data export`."""

    words: str
    help: str
    parameters: list[Any]
    hints: dict[str, Any]


def commands() -> list[Command]:
    """Every command, groups before their members."""
    return list(_walk(command_line(), "ludus"))


def cli_reference() -> str:
    """The page's body."""
    found = commands()
    index = table(
        ["command", "what it does"],
        ([f"[{code(each.words)}](#{_anchor(each.words)})", _prose(each.help)[0]] for each in found),
    )
    return "\n\n".join([index, *map(_section, found)])


def _walk(command: Any, words: str) -> Iterator[Command]:
    function = inspect.unwrap(command.callback) if command.callback is not None else None
    hints = get_type_hints(function, include_extras=False) if function is not None else {}
    parameters = [each for each in command.params if not getattr(each, "hidden", False)]
    yield Command(words, inspect.cleandoc(command.help or ""), parameters, hints)
    for name, member in getattr(command, "commands", {}).items():
        yield from _walk(member, f"{words} {name}")


def _section(command: Command) -> str:
    arguments = [each for each in command.parameters if not _is_option(each)]
    options = [each for each in command.parameters if _is_option(each)]
    parts = [f"## {command.words}", block(_usage(command, arguments, options), "text")]
    parts += _prose(command.help)
    examples = _examples(command.help)
    if examples:
        parts.append(block("\n".join(examples), "text"))
    if arguments:
        rows = ([code(_metavar(each, command)), _help(each)] for each in arguments)
        parts.append(table(["argument", "meaning"], rows))
    if options:
        rows = ([_spelling(each, command), _default(each), _help(each)] for each in options)
        parts.append(table(["option", "default", "meaning"], rows))
    return "\n\n".join(parts)


def _usage(command: Command, arguments: list[Any], options: list[Any]) -> str:
    words = [command.words, *(["[OPTIONS]"] if options else [])]
    for each in arguments:
        shown = _metavar(each, command) + ("..." if each.nargs != 1 else "")
        words.append(shown if each.required else f"[{shown}]")
    return " ".join(words)


def _prose(help: str) -> list[str]:
    """The paragraphs of a help text that are not examples."""
    found = help.split("\n\n")
    return [escape(" ".join(each.split())) for each in found if example_of(each) is None] or [""]


def _examples(help: str) -> list[str]:
    """The example commands of a help text, each after a comment that says what it is for."""
    lines = []
    for paragraph in help.split("\n\n"):
        found = example_of(paragraph)
        if found is None:
            continue
        what, command = found
        if what and what != "Example":
            lines.append(f"# {what}")
        lines.append(command)
    return lines


def _is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _spelling(parameter: Any, command: Command) -> str:
    """Every spelling of an option, the first with its value."""
    spellings = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag else f" {_metavar(parameter, command)}"
    return ", ".join(code(each + (value if number == 0 else "")) for number, each in enumerate(spellings))


def _metavar(parameter: Any, command: Command) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if not _is_option(parameter):
        return str(parameter.name).upper()
    return _value(command.hints.get(parameter.name, str))


def _value(hint: Any) -> str:
    """What to write for a value of this type."""
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) in (typing.Union, types.UnionType, list):
        return "|".join(dict.fromkeys(_value(each) for each in get_args(hint) if each is not type(None)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(str(each.value) for each in hint)
    return _VALUES.get(hint, "TEXT")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value == [] or value == "" or (parameter.is_flag and not value):
        return ""
    return code("yes" if value is True else str(getattr(value, "value", value)))


def _help(parameter: Any) -> str:
    return escape(parameter.help or "") + (" May be repeated." if getattr(parameter, "multiple", False) else "")


def _anchor(words: str) -> str:
    return words.replace(" ", "-")
