"""A problem with one final answer, which the model puts into a box.

A library compares the answer with the expected answer: exact, free and quick. The library may reject a right answer in
words or in an unknown notation, so a judge, if one is set, decides about rejected answers. An answer that the library
cannot accept within its CPU time is wrong, unless a judge decides: no answer ends a rollout without a reward.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import PositiveFloat

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.environments.math_with_judge.prompt import rubric
from ludus.graders.answers import last_boxed
from ludus.graders.judge import NAME_A_JUDGE, Judge, JudgeConfig, judge_usage, open_judge, require_judge
from ludus.graders.math import MathResult, check_math, is_readable, require_math
from ludus.runtime.processes import shared_pool

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

#: How many expected answers are remembered as readable.
_MOST_READABLE = 100_000


@dataclass
class Shared:
    """What all rollouts share: the judge, None if none is set, and the expected answers that the library can read."""

    judge: Judge | None
    readable: set[str] = field(default_factory=set)


class MathWithJudge(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        question: str
        expected_answer: str

    class Config(JudgeConfig):
        """Settings of the verifier."""

        #: Whether the judge decides about answers that the library rejects. None: only if a judge is set.
        should_use_judge: bool | None = None

        #: CPU time limit of one comparison by the library.
        library_verifier_timeout_seconds: PositiveFloat = 10.0

    config: Config
    shared: Shared

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        require_math()
        async with shared_pool(), open_judge(config) as judge:
            yield Shared(judge)

    async def open(self, task: Task) -> None:
        if self.config.should_use_judge:
            require_judge(self.shared.judge)
        await self._check(task)

    async def verify(self, task: Task, response: Response) -> Verdict:
        await self._check(task)
        text, compat = response.output_text, self.config.compat
        seconds = self.config.library_verifier_timeout_seconds
        result = await check_math(task.expected_answer, text, seconds=seconds, compat=compat)
        values: dict[str, Any] = {
            "expected_answer": task.expected_answer,
            "extracted_answer": result.extracted,
            "library_reward": float(result.equal or False),
            "library_refused": result.refused if result.failure is None else result.failure.cause,
            "library_out_of_time": result.failure is not None and result.failure.kind == "timeout",
            "judge_evaluations": None,
        }
        answered = bool(text.strip()) or compat
        if result.equal or not answered or not self._uses_judge:
            undecided = result.failure is not None and result.failure.kind == "undecided"
            return Verdict(
                float(result.equal or False), mask=values["library_refused"] if undecided else None, **values
            )
        judge, shown = require_judge(self.shared.judge), self._shown(result, text)
        evaluation = await judge.both_ways(rubric(compat), task.question, task.expected_answer, shown)
        values["judge_evaluations"] = evaluation.records
        return Verdict(float(evaluation.equal), judge_usage=judge_usage(evaluation.records), **values)

    async def _check(self, task: Task) -> None:
        """Refuse a row that no answer could satisfy: without an expected answer, or with an unreadable one."""
        expected, readable = task.expected_answer, self.shared.readable
        if self.config.compat or expected in readable:
            return
        if expected.strip() and (self._uses_judge or _NUMBER.fullmatch(expected) or await is_readable(expected)):
            if len(readable) < _MOST_READABLE:
                readable.add(expected)
            return
        what = f"is not mathematics: set a judge with: {NAME_A_JUDGE}" if expected.strip() else "is empty"
        raise Failure("bad_row", f"expected_answer {what}")

    @property
    def _uses_judge(self) -> bool:
        setting = self.config.should_use_judge
        return self.shared.judge is not None if setting is None else setting

    def _shown(self, result: MathResult, text: str) -> str:
        """The answer that the judge sees: the content of the last box, else what the library found, else all the text.

        The reference shows the library's reading of the box, where "Tuesday" is a product of letters.
        """
        boxed = None if self.config.compat else last_boxed(text)
        return (boxed or "").strip() or result.extracted or text
