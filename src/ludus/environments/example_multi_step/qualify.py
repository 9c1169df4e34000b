"""How qualification plays: look up every synonym and submit the values in order."""

from __future__ import annotations

from typing import Any


def oracle(task: Any) -> list[Any]:
    """Look up every synonym and submit the values."""
    calls = [{"call": "get_synonym_value", "arguments": {"synonym": word}} for word in task.expected_synonyms]
    return [*calls, *_submitting(_values(task))]


def preserving(task: Any) -> dict[str, Any]:
    """The right submission without lookups, and after a wrong submission."""
    values = _values(task)
    wrong_first = {"call": "extract_synonym_values", "arguments": {"synonym_values": [1, 2]}}
    return {"without_looking_up": _submitting(values), "corrected": [wrong_first, *_submitting(values)]}


def breaking(task: Any) -> dict[str, Any]:
    """Another order, wrong values, the minefield, and submissions that cannot be read."""
    values = _values(task)
    wrong = {
        "order": values[::-1],
        "off_by_one": [values[0] + 1, *values[1:]],
        "sign": [-value for value in values],
        "one_missing": values[:-1],
        "one_more": [*values, values[-1]],
        "minefield": [int(task.minefield_label_value)],
        "with_the_minefield": [*values, int(task.minefield_label_value)],
        "words": list(task.expected_synonyms),
        "texts": [str(value) for value in values],
        "nested": [values],
    }
    scripts: dict[str, Any] = {name: _submitting(submitted) for name, submitted in wrong.items() if submitted != values}
    return scripts | {
        "in_words": f"synonym_values: {values}",
        "taken_back": [*_submitting(values)[:1], *_submitting([])],
    }


def _values(task: Any) -> list[int]:
    return [int(value) for value in task.expected_synonym_values]


def _submitting(values: list[Any]) -> list[Any]:
    return [{"call": "extract_synonym_values", "arguments": {"synonym_values": values}}, "Done."]
