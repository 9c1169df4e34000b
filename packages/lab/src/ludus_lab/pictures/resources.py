"""A question about a drawn picture; the answer stands between tags and is compared exactly, or by distance."""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic import Field

import ludus
from ludus import Resources, Response, Verdict

_ANSWER = re.compile(r"<answer>([^<]{0,200})</answer>")
_POINT = re.compile(r"\(?\s*(\d{1,5}(?:\.\d{1,5})?)\s*,\s*(\d{1,5}(?:\.\d{1,5})?)\s*\)?")


class Pictures(Resources):
    """No tools and no state: the verifier reads the last pair of tags."""

    class Task(ludus.Task):
        kind: str
        expected_answer: str
        #: how far a point may be off, in pixels; 0 means that the answer must be equal
        tolerance: float = Field(0.0, ge=0)

    async def verify(self, task: Task, response: Response) -> Verdict:
        answers = _ANSWER.findall(response.output_text)
        answer = answers[-1].strip() if answers else None
        if not task.tolerance:
            right = answer is not None and answer.casefold() == task.expected_answer.casefold()
            return Verdict(float(right), kind=task.kind, answered=answer is not None)
        distance = _distance(answer, task.expected_answer)
        values: dict[str, Any] = {} if distance is None else {"distance": distance}
        right = distance is not None and distance <= task.tolerance
        return Verdict(float(right), kind=task.kind, answered=answer is not None, **values)


def _distance(answer: str | None, expected: str) -> float | None:
    """The distance of two points; None if the answer is no point."""
    points = [_POINT.fullmatch(text) for text in (answer or "", expected)]
    if points[0] is None or points[1] is None:
        return None
    return math.dist(*[(float(point[1]), float(point[2])) for point in points if point is not None])
