"""What `patterns.py` runs in a child process, in a module of its own so that the child has little to import."""

from __future__ import annotations

import re


def last_match(pattern: str, flags: int, text: str) -> list[tuple[int, int]] | str | None:
    """The spans of the last match and of its groups, None for no match, or a text that says what is wrong."""
    try:
        compiled = re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    last = None
    for last in compiled.finditer(text):  # noqa: B007
        pass
    return None if last is None else [last.span(group) for group in range(compiled.groups + 1)]
