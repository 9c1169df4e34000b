"""A question, then fixed follow-up questions, one per turn. Only the last answer is judged."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo, field_validator, model_validator

import ludus
from ludus import Game, Response, Step, Verdict
from ludus.environments.example_multi_turn_gymnasium.matching import says
from ludus.response import texts_of


class FollowUps(Game):
    """A user who asks the row's follow-up questions, whatever the model answers."""

    class Task(ludus.Task):
        follow_ups: list[str] = []
        expected_answer: str = ""

        @model_validator(mode="before")
        @classmethod
        def _may_be_nested(cls, row: Any, info: ValidationInfo) -> Any:
            """Some rows keep these fields in `verifier_metadata`; the reference reads the top level only."""
            nested = row.get("verifier_metadata") if isinstance(row, dict) and not _compat(info) else None
            return {**nested, **row} if isinstance(nested, dict) else row

        @field_validator("expected_answer", mode="before")
        @classmethod
        def _may_be_a_number(cls, value: Any, info: ValidationInfo) -> Any:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return str(value) if number and not _compat(info) else value

    async def reset(self, task: Task) -> None:
        self._remaining = list(task.follow_ups)

    async def step(self, task: Task, response: Response) -> Step:
        if self._remaining:
            return Step(self._remaining.pop(0))
        return Step(reward=float(self._right(task, response.output_text)), terminated=True)

    async def verify(self, task: Task, response: Response) -> Verdict:
        verdict = await super().verify(task, response)
        if not task.expected_answer and not self.config.compat:
            verdict.mask = "the row has no expected answer"
        return verdict

    def _right(self, task: Task, text: str) -> bool:
        expected = task.expected_answer
        if self.config.compat or not expected:
            return bool(expected) and expected.lower() in text.lower()
        asked = " ".join([*map(texts_of, task.input), *task.follow_ups])
        return says(text, expected, asked)


def _compat(info: ValidationInfo) -> bool:
    return bool((info.context or {}).get("compat"))
