"""Token counts as the Responses API has them: made complete, summed up over calls, and read from other programs."""

from __future__ import annotations

from typing import Any


def complete_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """The usage with every count that clients of the Responses API require. Unknown counts are 0."""
    read, written = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written, **details, **usage}


def add_usage(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add one call's token counts, and those in its details, to a running total. Other values are ignored."""
    for key, value in more.items():
        if type(value) is int:
            before = total.get(key, 0)
            if type(before) is int:
                total[key] = before + value
        elif isinstance(value, dict):
            details = total.get(key)
            if details is None:
                details = total[key] = {}
            if isinstance(details, dict):
                for name, count in value.items():
                    if type(count) is int:
                        details[name] = details.get(name, 0) + count


def less_usage(total: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """A running total without the counts that were added last."""
    less: dict[str, Any] = {}
    for key, value in total.items():
        added: Any = last.get(key)
        if type(added) is not type(value):
            less[key] = value
        elif isinstance(value, dict):
            less[key] = less_usage(value, added)
        else:
            less[key] = value - added
    return less


def token_count(usage: dict[str, Any], name: str) -> int:
    """A count of tokens in a usage; 0 if it is missing, or something else than a count."""
    count = usage.get(name)
    return count if type(count) is int and count > 0 else 0


def cached_tokens(usage: dict[str, Any]) -> int:
    """How many of the input tokens came from a cache."""
    details = usage.get("input_tokens_details")
    cached = token_count(details, "cached_tokens") if isinstance(details, dict) else 0
    return min(cached, token_count(usage, "input_tokens"))
