"""Help texts whose example commands can be copied: a command is one line, or broken with backslashes.

A paragraph of a help text that ends with a command is an example: `What it is for: ludus collect ...`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

from typer.core import TyperCommand, TyperGroup

_EXAMPLE = re.compile(r"(?:^|: |\n)((?:ludus|python|pip|kubectl) .*)", re.DOTALL)
#: A word of a command: quoted text stays together.
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
_INDENT, _CONTINUED = "  ", "      "


def example_of(paragraph: str) -> tuple[str, str] | None:
    """The purpose of an example, and its command in one line. None for a paragraph without a command."""
    match = _EXAMPLE.search(paragraph)
    if match is None:
        return None
    return " ".join(paragraph[: match.start()].split()).rstrip(":"), " ".join(match[1].split())


def laid_out(help: str, width: int) -> str:
    """A help text whose examples fit the width. The mark \\b before them keeps click from rewrapping their lines."""
    return "\n\n".join(_paragraph(paragraph, width) for paragraph in help.split("\n\n"))


def _paragraph(text: str, width: int) -> str:
    example = example_of(text)
    if example is None:
        return text
    purpose, command = example
    if purpose == "Example" and len(line := f"{purpose}: {command}") <= width:
        return f"\b\n{line}"
    heading = textwrap.wrap(f"{purpose}:", width) if purpose else []
    return "\n".join(["\b", *heading, *_broken(command, width)])


def _broken(command: str, width: int) -> list[str]:
    """The lines of a command: each but the last ends with a backslash, and an option stays with its value."""
    units: list[str] = []
    for word in _WORD.findall(command):
        if units and not word.startswith("-") and (units[-1].startswith("-") and " " not in units[-1]):
            units[-1] += f" {word}"
        else:
            units.append(word)
    lines = [_INDENT + units[0]]
    for number, unit in enumerate(units[1:], start=1):
        room = width - (2 if number < len(units) - 1 else 0)  # for the backslash
        if len(lines[-1]) + 1 + len(unit) <= room:
            lines[-1] += f" {unit}"
        else:
            lines.append(_CONTINUED + unit)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


class _Laid:
    """Shows the help text of a command with `laid_out`."""

    help: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        formatter.write_paragraph()
        with formatter.indentation():
            text = inspect.cleandoc(self.help or "")
            formatter.write_text(laid_out(text, formatter.width - formatter.current_indent))


class HelpfulCommand(_Laid, TyperCommand):
    """A command whose examples can be copied. Options with a `rich_help_panel` stand under it as their heading."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class HelpfulGroup(_Laid, TyperGroup):
    """A group of commands whose examples can be copied."""
