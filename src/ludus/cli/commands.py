"""A command is a function: the signature says what it takes, the docstring is its help text, click parses the words.

    def greet(name: Annotated[str, Argument(help="Whom.")], loud: Annotated[bool, Option("--loud")] = False) -> None:
        '''Say hello.'''

Typer reads signatures too, but imports pydantic and makes a model of every parameter, which doubled the time to start.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from click.exceptions import Exit, UsageError

from ludus.cli.help_text import laid_out
from ludus.runtime.option_limits import MAX_INT64

__all__ = ["Argument", "Command", "CommandGroup", "Exit", "Option", "UsageError", "usage_message"]


@dataclass(frozen=True)
class Argument:
    """Marks a parameter that is given by its place. With a default it may be left out."""

    metavar: str | None = None
    help: str = ""
    min: float | None = None
    max: float | None = None


class Option:
    """Marks a parameter that is given by a flag: by default `--its-name`, and for a bool `--no-...` too."""

    def __init__(
        self,
        *flags: str,
        metavar: str | None = None,
        help: str = "",
        min: float | None = None,
        max: float | None = None,
        panel: str | None = None,
        at_once: Callable[[], None] | None = None,
    ) -> None:
        """`panel` is the heading in the help text; `at_once` is called instead of the command."""
        self.flags, self.metavar, self.help, self.min, self.max = flags, metavar, help, min, max
        self.panel, self.at_once = panel, at_once


class _Helpful(click.Command):
    """A command of a function. Its parameters are read when they are needed, and its examples can be copied."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        super().__init__(name or function.__name__.strip("_"), callback=function, help=inspect.getdoc(function))
        del self.params  # read below

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """The arguments and options of the function."""
        parameters = inspect.signature(self.callback, eval_str=True).parameters.values()  # type: ignore[arg-type]
        return [_parameter(parameter) for parameter in parameters]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help text."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(laid_out(self.help or "", formatter.width - formatter.current_indent))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments and the options, each under its heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if isinstance(parameter, click.Argument) else "Options"
            title = getattr(parameter, "panel", None) or usual
            sections.setdefault(title, []).append(parameter.get_help_record(ctx))  # type: ignore[arg-type]
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class Command(_Helpful):
    """One command."""


class CommandGroup(_Helpful, click.Group):
    """Commands under one name. Its function takes the group's own options. Without a word it shows its help text."""

    def command(self, function: Callable[..., Any]) -> Callable[..., Any]:  # type: ignore[override]
        """Add the command of a function, which stays what it is."""
        self.add_command(Command(function))
        return function

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words before the name of a command."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that the first word names."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            near = " or ".join(map(repr, get_close_matches(args[0], self.list_commands(ctx))))
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near}?" if near else ""))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help text."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options and the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class _Placed(click.Argument):
    """An argument with a help text."""

    def __init__(self, name: str, about: Argument, **settings: Any) -> None:
        super().__init__([name], metavar=about.metavar, **settings)
        self.about = about.help

    def make_metavar(self, ctx: click.Context | None = None) -> str:
        """How the help text calls it."""
        return self.metavar or self.name.upper()

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        """How the usage line shows it: in brackets where it may be left out."""
        shown = self.make_metavar(ctx)
        if self.nargs == -1 and "..." not in shown:
            shown += "..."
        return [shown if self.required or shown.startswith("[") else f"[{shown}]"]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its line in the help text."""
        limits = self.type._describe_range() if isinstance(self.type, _RANGES) else ""
        default = f"default: {self.default}" if self.default and isinstance(self.default, str) else ""
        extra = "; ".join(filter(None, [default, limits, "required" if self.required else ""]))
        return f"{self.make_metavar(ctx)} {_shown(self.type)}", self.about + (f"  [{extra}]" if extra else "")


class _Named(click.Option):
    """An option that stands under a heading of its own in the help text."""

    def __init__(self, spellings: list[str], panel: str | None, **settings: Any) -> None:
        super().__init__(spellings, **settings)
        self.panel = panel

    def make_metavar(self, ctx: click.Context | None = None) -> str:
        """How the help text calls its value."""
        return self.metavar or _shown(self.type)


class _IntRange(click.IntRange):
    """A range. The help text leaves out bounds that only 64-bit integers have."""

    def _describe_range(self) -> str:
        least = None if self.min == -MAX_INT64 else self.min
        most = None if self.max == MAX_INT64 else self.max
        return click.IntRange(least, most)._describe_range() if (least, most) != (None, None) else ""


class _FloatRange(click.FloatRange):
    """A range that nan is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number that a text stands for."""
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number.", param, ctx) if number != number else number


_RANGES = (click.IntRange, _FloatRange)


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """What click needs to parse a parameter of a command."""
    annotated, about = get_args(parameter.annotation) or (parameter.annotation, Argument())
    kind = _without_none(annotated)
    many = get_origin(kind) is list
    kind = _type(get_args(kind)[0] if many else kind, about)
    settings: dict[str, Any] = {"type": kind, "required": parameter.default is parameter.empty}
    if parameter.default is not parameter.empty:
        settings["default"] = parameter.default
    if many:
        settings["callback"] = lambda ctx, taken, values: list(values or ()) or settings.get("default")
    if isinstance(about, Argument):
        return _Placed(parameter.name, about, nargs=-1 if many else 1, **settings)
    flag = f"--{parameter.name.replace('_', '-')}"
    spellings = list(about.flags) or [f"{flag}/--no-{flag[2:]}" if kind is click.BOOL else flag]
    if kind is click.BOOL:
        settings |= {"is_flag": True}
    else:
        settings |= {"multiple": many, "metavar": about.metavar}
    if about.at_once is not None:
        settings |= {"is_eager": True, "callback": lambda ctx, taken, value: about.at_once() if value else None}
    return _Named(
        [*spellings, parameter.name], about.panel, help=about.help, show_default=parameter.default != "", **settings
    )


def _without_none(annotation: Any) -> Any:
    """The type of a parameter that may be None."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    return members[0] if type(None) in get_args(annotation) else annotation


def _type(kind: Any, about: Argument | Option) -> Any:
    if about.min is not None or about.max is not None:
        return (_IntRange if kind is int else _FloatRange)(about.min, about.max)  # type: ignore[arg-type]
    return {str: click.STRING, int: click.INT, float: click.FLOAT, bool: click.BOOL, Path: _PATH}[kind]


_PATH = click.Path(path_type=Path)
_NAMES = {click.STRING: "str", click.INT: "int", click.FLOAT: "float", _PATH: "path"}


def _shown(kind: Any) -> str:
    """A value of this type in the help text."""
    return f"<{_NAMES.get(kind) or ('int range' if isinstance(kind, click.IntRange) else 'float range')}>"


def usage_message(error: UsageError) -> str:
    """What is wrong with the words that were typed."""
    if isinstance(error, click.NoSuchOption):
        near = ", ".join(sorted(error.possibilities or ()))
        return f"No such option: {error.option_name}" + (f" (Possible options: {near})" if near else "")
    return error.format_message()
