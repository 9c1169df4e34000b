"""The model turns a message into a JSON object with given fields.

Every field counts by itself, so that half an extraction earns something. A wrong or invented value costs as much as a
right one earns, so that guessing does not pay.
"""

from __future__ import annotations

from typing import Any

import ludus
from ludus import Resources, Response, Verdict
from ludus.graders.code_blocks import last_block
from ludus.graders.formats import FormatError, parse
from ludus.graders.outputs import same_value


class JsonExtractor(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        expected: dict[str, Any]  # null for a field that the message does not mention

    def verify(self, task: Task, response: Response) -> Verdict:
        block = last_block(response.output_text)
        try:
            parsed = parse(block.code if block else response.output_text, "json")
        except FormatError as error:
            return Verdict(0.0, problem=str(error), right=0, wrong=0)
        if not isinstance(parsed, dict):
            return Verdict(0.0, problem="the JSON value is not an object", right=0, wrong=0)
        answered = {field: value for field, value in parsed.items() if value is not None}
        wanted = {field: value for field, value in task.expected.items() if value is not None}
        right = sum(field in wanted and same(wanted[field], value) for field, value in answered.items())
        wrong = len(answered) - right
        return Verdict(max(0.0, right - wrong) / len(wanted), problem="", right=right, wrong=wrong)


def same(expected: Any, actual: Any) -> bool:
    """Whether two values are equal. The case of letters and the space around a text do not matter."""
    if isinstance(expected, str) and isinstance(actual, str):
        return expected.strip().casefold() == actual.strip().casefold()
    return isinstance(expected, bool) == isinstance(actual, bool) and same_value(expected, actual)
