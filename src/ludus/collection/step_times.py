"""When each step of a rollout began and how long it took, for traces.

An episode is timed only if the run asks for it: a timed episode is a subclass, so that other runs pay nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import cache
from time import perf_counter
from typing import Any, TypeVar, cast

from ludus.episode import Episode
from ludus.errors import Failure, Stage
from ludus.resources import Resources
from ludus.response import Response
from ludus.task import Task
from ludus.tools import Raised

E = TypeVar("E", bound=Episode)
T = TypeVar("T")

#: The fields of a model's usage that a step keeps.
_USAGE = ("input_tokens", "output_tokens")


class _Timed(Episode):
    """An episode that records its steps: model calls, each tool call, verify and so on.

    A step is `{"stage", "at", "seconds"}`, with `name` for a tool, `error` if it went wrong, and for a model call that
    was answered `model`, `input_tokens` and `output_tokens`. `at` counts from the start of the rollout.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._wall, self._zero = time.time(), perf_counter()
        self._steps: list[dict[str, Any]] = []

    def step_times(self) -> dict[str, Any]:
        """When the rollout started, in seconds since 1970, and its steps in the order in which they began."""
        return {"started": round(self._wall, 6), "steps": self._steps}

    def step(self, stage: Stage, seconds: float, work: Awaitable[T], name: str = "") -> Awaitable[T]:
        """Await one step, and record it. The calls of a turn's tools are recorded one by one."""
        awaited = super().step(stage, seconds, work, name)
        return awaited if stage == "tool" else self._record({"stage": stage}, awaited)

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run one tool, and record the call."""
        return await self._record({"stage": "tool", "name": name}, super().call_tool(name, arguments))

    def take(self, response: Response, tools: list[dict[str, Any]] | None) -> None:
        """Append an answer of the model, and add its tokens to the step of its call."""
        super().take(response, tools)
        call = next((each for each in reversed(self._steps) if each["stage"] == "model"), None)
        if call is not None and "model" not in call:
            usage = response.usage
            call["model"] = str(response.data.get("model") or "")
            call |= {key: usage[key] for key in _USAGE if isinstance(usage.get(key), int)}

    def start_over(self, task: Task, resources: Resources) -> None:
        """Forget everything that happened."""
        super().start_over(task, resources)
        self._steps.clear()

    def _count_tool_error(self, name: str, raised: Raised) -> None:
        for each in self._steps:
            if each.get("name") == name and "seconds" not in each and "error" not in each:
                each["error"] = raised.exception
                break
        super()._count_tool_error(name, raised)

    async def _record(self, entry: dict[str, Any], work: Awaitable[T]) -> T:
        began = perf_counter()
        entry["at"] = round(began - self._zero, 6)
        self._steps.append(entry)
        try:
            return await work
        except Failure as failure:
            entry["error"] = failure.kind
            raise
        finally:
            entry["seconds"] = round(perf_counter() - began, 6)


@cache
def timed(kind: type[E]) -> type[E]:
    """The class of episodes of this kind that record their steps."""
    return cast("type[E]", type(f"Timed{kind.__name__}", (_Timed, kind) if kind is not Episode else (_Timed,), {}))


def step_times(episode: Episode) -> dict[str, Any] | None:
    """The steps of an episode; None if they are not recorded."""
    return episode.step_times() if isinstance(episode, _Timed) else None
