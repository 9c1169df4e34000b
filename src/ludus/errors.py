"""Mistakes that a user can fix: one sentence that names the thing, the place and what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Shown as one line without a traceback. `hint` is what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)


class MissingExtra(UserError):
    """An optional part is not installed."""


def missing_extra(what: str, install: str) -> MissingExtra:
    """The error for an optional part that is not installed."""
    return MissingExtra(f"{what} is not installed", f"Install it with: {install}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them when nothing is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(names) or 'none'}."
