"""The function that `patterns.py` runs in a child process. It has its own module so that the child imports little."""

from __future__ import annotations

import re


def last_match(pattern: str, flags: int, text: str) -> list[tuple[int, int]] | str | None:
    """The spans of the last match and of its groups, None without a match, or the error of an invalid pattern."""
    try:
        compiled = re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    last = None
    for last in compiled.finditer(text):  # noqa: B007
        pass
    return None if last is None else [last.span(group) for group in range(compiled.groups + 1)]
