"""Token counts as providers report them, added up: whole numbers, and those in their details; the rest is left out."""

from __future__ import annotations

from typing import Any


def add_usage(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add one call's token counts, and those in its details, to a running total. Anything else is left out."""
    for key, value in more.items():
        if type(value) is int:
            before = total.get(key)
            if before is None:
                total[key] = value
            elif type(before) is int:
                total[key] = before + value
        elif type(value) is dict:
            details = total.get(key)
            if details is None:
                details = total[key] = {}
            if type(details) is dict:
                for name, count in value.items():
                    if type(count) is int:
                        details[name] = details[name] + count if name in details else count
