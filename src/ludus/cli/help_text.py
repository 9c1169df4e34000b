"""Help texts whose example commands can be copied: a command is one line, or broken with backslashes.

A paragraph of a help text that ends with a command is an example: `What it is for: ludus collect ...`.
"""

from __future__ import annotations

import re
import textwrap

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
