r"""A generated puzzle; the model reasons freely and puts its answer into `<answer>` or `\boxed{}`.

The library that generated the puzzle scores the answer, between 0 and 1. A hostile answer can keep a scorer busy for
hours, and some scorers run the answer as code. So they work in child processes with a CPU time limit, and parse data.
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
    """A function of `scoring.py` by name, since only child processes import that module and the library with it."""
    return cast("Callable[..., Any]", SimpleNamespace(__module__=f"{__package__}.scoring", __qualname__=name))


SCORE, FAMILIES = _in_child("score"), _in_child("families")


@dataclass
class Shared:
    """The child processes and the library's families, which all rollouts share."""

    pool: ProcessPool
    families: dict[str, str]


class ReasoningGym(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        question: str
        answer: str | None = None
        metadata: dict[str, Any]
        config: dict[str, Any] = {}

        @property
        def family(self) -> str:
            """The family of the puzzle, which decides the scorer."""
            return str(self.metadata["source_dataset"])

        @field_validator("metadata")
        @classmethod
        def _check_family(cls, metadata: dict[str, Any]) -> dict[str, Any]:
            if not isinstance(metadata.get("source_dataset"), str):
                raise ValueError("source_dataset must name the family of the puzzle")
            return metadata

    class Config(ResourcesConfig):
        """Settings of the verifier."""

        #: CPU time limit for scoring one answer.
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
        if self._is_empty(task, answer, response.output_text):
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

    def _is_empty(self, task: Task, answer: str, text: str) -> bool:
        """Whether there is no answer. An empty pair of tags is an answer if the row's answer is blank."""
        blank_key = task.answer is not None and not task.answer.strip()
        return not self.config.compat and not answer and not (blank_key and text.strip())


def require_library() -> None:
    """Raise an error that names the extra to install if the library is missing."""
    if find_spec("reasoning_gym") is None:
        raise missing_extra("reasoning-gym", "reasoning")
