"""The tokens that a usage reports, whatever program wrote it."""

from __future__ import annotations

from typing import Any


def token_count(usage: dict[str, Any], name: str) -> int:
    """A count of tokens in a usage; 0 if it is missing, or something else than a count."""
    count = usage.get(name)
    return count if type(count) is int and count > 0 else 0


def cached_tokens(usage: dict[str, Any]) -> int:
    """How many of the input tokens came from a cache."""
    details = usage.get("input_tokens_details")
    cached = token_count(details, "cached_tokens") if isinstance(details, dict) else 0
    return min(cached, token_count(usage, "input_tokens"))
