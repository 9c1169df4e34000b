"""What `ludus qualify` cannot read from the rows: the right object, near misses, and objects made by guessing."""

from __future__ import annotations

import json
from typing import Any


def oracle(task: Any) -> str:
    """The right object."""
    return json.dumps(task.expected)


def preserving(task: Any) -> dict[str, Any]:
    """The same object in a block, in another order, and without the fields that are null."""
    known = {field: value for field, value in task.expected.items() if value is not None}
    return {
        "block": f"Here it is:\n```json\n{json.dumps(task.expected, indent=2)}\n```",
        "order": json.dumps(dict(reversed(task.expected.items()))),
        "without_nulls": json.dumps(known),
    }


def breaking(task: Any) -> dict[str, Any]:
    """Objects with one mistake, an invented field, and two objects at once."""
    right = task.expected
    return {
        "wrong_total": json.dumps({**right, "total": right["total"] + 1}),
        "total_as_text": json.dumps({**right, "total": str(right["total"])}),
        "invented_field": json.dumps({**right, "currency": "EUR"}),
        "in_a_list": json.dumps([right]),
        "twice": json.dumps(right) * 2,
        "no_json": str(right),
    }


def exploits(task: Any) -> dict[str, Any]:
    """The same object for every message."""
    guesses = dict.fromkeys(task.expected, "unknown")
    return {
        "all_null": json.dumps(dict.fromkeys(task.expected)),
        "all_false": json.dumps(dict.fromkeys(task.expected, False)),
        "guesses": json.dumps({**guesses, "total": 100, "reverse_charge": True, "due_date": "2026-12-31"}),
        "nan": '{"total": NaN}',
    }
