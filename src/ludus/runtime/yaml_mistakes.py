"""Mistakes in a YAML file in plain words: where they are, what is wrong, and what to write.

The parser names internal tokens (`<block end>`) and often the line after the mistake. Here the line is the right one.
"""

from __future__ import annotations

import re
from typing import Any

#: The parser's message, the problem, and the remedy.
_MEANINGS = [
    (r"found character '\\t'", "the line is indented with a tab", "Indent it with spaces"),
    (r"found character '(.)'", "a value begins with {0}, a special character of YAML", "Put the value in quotes"),
    (r"undefined alias", "a value begins with *, a special character of YAML", "Put the value in quotes"),
    (r"constructor for the tag", "a value begins with !, a special character of YAML", "Put the value in quotes"),
    (r"unknown escape character '(.)'", r"\{0} means nothing in double quotes", "Use single quotes, or write \\\\"),
    (r"sequence entries", "a list begins on the line of its key", "Write each - on a line of its own"),
    (r"another document", "a second document begins here", "Remove the line ---"),
]  # fmt: skip


def yaml_mistake(error: Exception, text: str) -> tuple[str, str]:
    """What is wrong in a YAML text, beginning with line and column, and what to do about it."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split()), "Correct that value, or put it in quotes"
    start = getattr(error, "context_mark", None)
    context, problem = getattr(error, "context", None) or "", getattr(error, "problem", None) or ""
    line = _line(text, mark)
    if "could not find expected ':'" in problem and start is not None:
        wrong = f"expected KEY: VALUE, found {_line(text, start).strip()!r:.60}"
        return _at(start, wrong), "Write a colon and a space after the key"
    if "mapping values" in problem:
        if ":" in line[: mark.column]:
            return _at(mark, "a value contains a colon and a space"), "Put the value in quotes"
        hint = "Indent it as much as the line before"
        return _at(mark, "the line is indented more than the line before, which has a value"), hint
    if "expected <block end>" in problem:
        if line[: mark.column].strip():
            return _at(mark, "expected the end of the line after a value"), "Put the whole value in one pair of quotes"
        return _at(mark, "expected the indentation of the lines before"), "Indent all keys of one block alike"
    if "quoted scalar" in context and start is not None and "end of stream" in problem:
        return _at(start, "expected a second quote: the one here is never closed"), "Close the quote"
    if (match := re.match(r"expected (',' or '.')", problem)) and start is not None:
        wrong = f"expected {match[1]} after what began at line {start.line + 1}, column {start.column + 1}"
        return _at(mark, wrong), "Close the bracket, or put a comma between values"
    for pattern, meaning, hint in _MEANINGS:
        if match := re.search(pattern, problem):
            return _at(mark, meaning.format(*match.groups())), hint
    return _at(mark, ", ".join(filter(None, [context, problem]))), "Correct that line"


def _at(mark: Any, problem: str) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _line(text: str, mark: Any) -> str:
    lines = text.splitlines()
    return lines[mark.line] if mark.line < len(lines) else ""
