r"""A generated puzzle; the model thinks as long as it likes and puts its answer into `<answer>` or `\boxed{}`.

The library that generated the puzzle scores the answer, between 0 and 1. Some of its scorers run for hours over the
right text, and some run the text itself, so they work in child processes, on a budget, and on data instead of code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, cast

from pydantic import PositiveFloat, field_validator

import ludus
from ludus import Failure, Resources, ResourcesConfig, Response, Verdict
from ludus.environments.reasoning_gym.extraction import final_answer
from ludus.errors import did_you_mean, missing_extra
from ludus.runtime.processes import OutOfTime, ProcessPool, shared_pool


def _in_child(name: str) -> Callable[..., Any]:
    """A function of `scoring.py` by name, since only children import that module and the library with it."""
    return cast("Callable[..., Any]", SimpleNamespace(__module__=f"{__package__}.scoring", __qualname__=name))


SCORE, FAMILIES = _in_child("score"), _in_child("families")


@dataclass
class Shared:
    """What all rollouts use: the children, and the families that the library knows."""

    pool: ProcessPool
    families: dict[str, str]


class ReasoningGym(Resources):
    """No tools and no state: the text is judged as it is."""

    class Task(ludus.Task):
        question: str
        answer: str | None = None
        metadata: dict[str, Any]
        config: dict[str, Any] = {}

        @property
        def family(self) -> str:
            """Which family the puzzle is of, and so who scores it."""
            return str(self.metadata["source_dataset"])

        @field_validator("metadata")
        @classmethod
        def _names_its_family(cls, metadata: dict[str, Any]) -> dict[str, Any]:
            if not isinstance(metadata.get("source_dataset"), str):
                raise ValueError("source_dataset must name the family of the puzzle")
            return metadata

    class Config(ResourcesConfig):
        """Settings of the verifier."""

        #: Processor time that the scoring of one answer may take.
        seconds: PositiveFloat = 10.0

    config: Config
    shared: Shared

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        require_library()
        async with shared_pool() as pool:
            yield Shared(pool, await pool.run(FAMILIES))

    async def open(self, task: Task) -> None:
        known = self.shared.families
        if task.family not in known and not self.config.compat:
            raise Failure("bad_row", f"there is no family {task.family!r:.60}. {did_you_mean(task.family, known)}")

    async def verify(self, task: Task, response: Response) -> Verdict:
        answer = final_answer(response.output_text, self.config.compat)
        values: dict[str, Any] = {"task_name": task.family, "extracted_answer": answer, "out_of_time": False}
        if self._unanswered(task, answer, response.output_text):
            return Verdict(0.0, score=0.0, **values)
        entry = {"question": task.question, "answer": task.answer, "metadata": task.metadata}
        seconds = self.config.seconds
        try:
            reward, problem = await self.shared.pool.run(
                SCORE,
                *(task.family, answer, entry, task.config, self.config.compat),
                cpu_seconds=seconds,
                timeout=max(60.0, 6 * seconds),
            )
        except OutOfTime:
            return Verdict(0.0, score=0.0, **{**values, "out_of_time": True})
        if problem is not None:
            raise Failure("bad_row", problem)
        return Verdict(reward, score=reward, **values)

    def _unanswered(self, task: Task, answer: str, text: str) -> bool:
        """Whether nothing was answered. A blank between tags can be an answer, to a row whose key is blank."""
        blank_key = task.answer is not None and not task.answer.strip()
        return not self.config.compat and not answer and not (blank_key and text.strip())


def require_library() -> None:
    """Say at once, and not in the first verdict, that the library is not there."""
    if find_spec("reasoning_gym") is None:
        raise missing_extra("reasoning-gym", "reasoning")
