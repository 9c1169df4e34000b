"""The model looks up a value for each synonym of a word and submits the values in the list's order.

The word itself has a value too. Submitting that value is the trap, called the minefield.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

import ludus
from ludus import Resources, Response, Verdict, tool
from ludus.graders.rows import Integer

_INTEGERS = TypeAdapter(list[int])


class Synonyms(Resources):
    """Tools to look up and to submit values. There is no state: the verifier reads submissions from the transcript."""

    class Task(ludus.Task):
        id: Integer
        expected_synonyms: list[str]
        expected_synonym_values: list[Integer] = Field(min_length=1)
        minefield_label: str
        minefield_label_value: Integer

    @tool
    async def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """Look up the value of a synonym."""
        return {"synonym_value": sum(map(ord, synonym))}

    @tool
    async def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:
        """Submit the values of all synonyms, in order."""
        return {"success": True}

    async def verify(self, task: Task, response: Response) -> Verdict:
        submitted, as_integers = _submission(response)
        if not self.config.compat:
            submitted = [None if isinstance(value, bool) else value for value in submitted]  # in Python, True == 1
        expected = task.expected_synonym_values
        accurate = submitted == expected
        overlap = len({*submitted} & {*expected}) / len(expected)
        return Verdict(
            float(accurate),
            parsed_synonym_values=as_integers,
            accuracy=accurate,
            set_overlap=overlap,
            original_term_minefield_hit=task.minefield_label in submitted or task.minefield_label_value in submitted,
            order_instruction_following_failure=not accurate and overlap == 1.0,
        )


def _submission(response: Response) -> tuple[list[Any], list[int]]:
    """The values of the last submission as the model wrote them, and as integers.

    Both are empty if the submission is not a list of integers.
    """
    calls = [call for call in response.function_calls if call.get("name") == "extract_synonym_values"]
    try:
        submitted = json.loads(calls[-1]["arguments"])["synonym_values"]
        return submitted, _INTEGERS.validate_python(submitted)
    except (LookupError, TypeError, ValueError, RecursionError, ValidationError):
        return [], []
