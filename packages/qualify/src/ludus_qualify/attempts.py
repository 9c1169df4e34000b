"""Attempts: scripts for tasks, which the ordinary collector plays with a scripted model.

An attempt's id takes the place of the task id, so its seed depends neither on the order of the attempts nor on the
concurrency. Two passes over the same attempts can be compared attempt by attempt.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ludus.collection.collector import Collector
from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.rollout import Rollout, rollout_id
from ludus.task import Task, derive_seed

Row = dict[str, Any]
Kind = Literal["oracle", "exploit", "preserving", "breaking", "near_miss", "odd"]

#: The turns of a model: a text or a mapping for one turn, a list of turns, or a function from a request to a turn.
Script = str | dict[str, Any] | list[Any] | Callable[[Request], Any]

#: A value is shown whole up to this many characters, and then its beginning and its end.
MOST_SHOWN = 800


def shown(value: Any) -> str:
    """A value in one line, for errors and examples."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    half = MOST_SHOWN // 2
    return text if len(text) <= MOST_SHOWN else f"{text[:half]} ... {text[-half:]} ({len(text)} characters)"


@dataclass(frozen=True)
class Attempt:
    """One script for one row. `name` is the policy or the variant; `number` tells its draws apart."""

    task_id: str
    row: Row
    kind: Kind
    name: str
    script: Script
    number: int = 0

    @property
    def id(self) -> str:
        """The unique id of the attempt."""
        return f"{self.task_id}/{self.kind}/{self.name}/{self.number}"

    def turn(self, request: Request) -> Any:
        """The model's next turn. After the end of the script its last turn repeats."""
        if callable(self.script):
            return self.script(request)
        turns = self.script if isinstance(self.script, list) else [self.script]
        return turns[min(request.turn, len(turns) - 1)] if turns else ""


class _Rows(Rows):
    """The rows of the attempts under the attempts' ids. Each rollout gets a copy of its row."""

    def __init__(self, attempts: list[Attempt], environment: Environment) -> None:
        super().__init__([attempt.row for attempt in attempts], environment.task)
        self._attempts, self._environment = attempts, environment

    def __iter__(self) -> Iterator[tuple[str, Row, Task]]:
        for attempt in self._attempts:
            row = copy.deepcopy(attempt.row)
            yield attempt.id, row, self._environment.task(row)


async def play(environment: Environment, attempts: list[Attempt], *, concurrency: int, seed: int) -> dict[str, Rollout]:
    """Play the attempts in order, `concurrency` at a time, and return their rollouts by attempt id.

    With several in flight, the model yields to the event loop up to seven times before each answer, a number that
    depends on the attempt. So the steps of different rollouts interleave.
    """
    by_session = {rollout_id(attempt.id, 0): attempt for attempt in attempts}
    played: dict[str, Rollout] = {}

    async def answer(request: Request) -> Any:
        session = request.session or ""
        for _ in range(derive_seed(seed, session, request.turn) % 8 if concurrency > 1 else 0):
            await asyncio.sleep(0)
        return by_session[session].turn(request)

    async def keep(rollout: Rollout) -> None:
        played[rollout.job.task_id] = rollout

    model = ScriptedModel(answer, "qualify")
    options = Options(concurrency=concurrency, seed=seed)
    plan = CollectionPlan(options, _Rows(attempts, environment), lambda _: environment, model)
    collector = Collector(plan, sink=keep)
    collector.progress.total = len(attempts)
    await collector.run()
    return played
