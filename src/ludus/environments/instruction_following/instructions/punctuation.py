"""Punctuation marks that a text must not contain, and quotation. Only the ASCII marks count, as in the instructions."""

from __future__ import annotations


def no_comma(text: str) -> bool:
    """There is no comma."""
    return "," not in text


def no_dot(text: str) -> bool:
    """There is no dot."""
    return "." not in text


def no_exclamation(text: str) -> bool:
    """There is no exclamation mark."""
    return "!" not in text


def quotation(text: str) -> bool:
    """The whole text stands between double quotation marks."""
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
