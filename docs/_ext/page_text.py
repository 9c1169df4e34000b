"""Small pieces of Markdown that the generated pages are made of."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

#: Characters that Markdown reads as markup in running text.
_MARKUP = re.compile(r"([\\*_<>\[\]$`{}])")


def escape(text: str) -> str:
    """Text in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", text)


def code(text: str) -> str:
    """Text as code on one line, with a fence longer than any run of backticks inside it."""
    line = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def block(text: str, language: str = "text") -> str:
    """Text as a block of code."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Its cells are Markdown; a line break or a bar inside a cell does not end it."""
    lines = [_line(header), _line(["---"] * len(header)), *map(_line, rows)]
    return "\n".join(lines)


def paragraphs(docstring: str | None) -> str:
    """A docstring as Markdown: its indented examples become blocks of Python."""
    return _examples_in_blocks(inspect.cleandoc(docstring or ""))


def first_paragraph(text: str) -> str:
    """The first paragraph on one line."""
    return " ".join(text.strip().split("\n\n", 1)[0].split())


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _examples_in_blocks(text: str) -> str:
    parts: list[str] = []
    example: list[str] = []
    table = False
    for line in [*text.split("\n"), ""]:
        if line.startswith("    ") or (example and not line.strip()):
            example.append(line[4:])
            continue
        if example:
            parts += [block("\n".join(example).rstrip(), "python"), ""]
            example = []
        table = line.startswith("|")
        parts.append(line if table else _safe_line(line))
    if example:
        parts.append(block("\n".join(example).rstrip(), "python"))
    return "\n".join(parts).strip()


def _safe_line(line: str) -> str:
    """A line of prose in which only code in backticks is markup."""
    pieces = re.split(r"(`+[^`]+`+)", line)
    return "".join(piece if piece.startswith("`") else re.sub(r"([*_<>\[\]$])", r"\\\1", piece) for piece in pieces)
