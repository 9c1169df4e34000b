"""How `ludus qualify` fills in the form: with the expected fields."""

from __future__ import annotations

from typing import Any

_SUBMIT = {"call": "submit"}


def oracle(task: Any) -> list[Any]:
    """Fill in every field, then submit."""
    return [_filled(task.expected), _SUBMIT, "Done."]


def preserving(task: Any) -> dict[str, Any]:
    """The same form after a correction, and in capitals."""
    capitals = {field: value.upper() for field, value in task.expected.items()}
    wrong = _filled({"name": "Somebody", "requests": "none"})
    emptied = _filled({"requests": ""})
    return {"corrected": [wrong, emptied, *oracle(task)], "capitals": [_filled(capitals), _SUBMIT, "Done."]}


def breaking(task: Any) -> dict[str, Any]:
    """Forms with a mistake, an invented field, and forms that were not submitted or too early."""
    right = task.expected
    guessed = {"nights": "2", "email": "guest@hotel.example", "requests": "a sea view"}
    invented = {field: value for field, value in guessed.items() if field not in right} or {"name": "A Guest"}
    return {
        "not_submitted": [_filled(right), "I have submitted the form."],
        "submitted_first": [_SUBMIT, _filled(right), "Done."],
        "one_missing": [_filled(dict(list(right.items())[1:])), _SUBMIT, "Done."],
        "invented": [_filled({**right, **invented}), _SUBMIT, "Done."],
        "one_guest_more": [_filled({**right, "guests": str(int(right["guests"]) + 1)}), _SUBMIT, "Done."],
        "in_words": str(right),
    }


def exploits(task: Any) -> dict[str, Any]:
    """Submit the form at once."""
    return {"submits_nothing": [_SUBMIT, "Done."]}


def _filled(fields: dict[str, str]) -> dict[str, Any]:
    values = [{"field": field, "value": value} for field, value in fields.items()]
    return {"calls": [{"name": "fill_in", "arguments": value} for value in values]}
