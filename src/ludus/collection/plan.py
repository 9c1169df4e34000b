"""What a collection plays: the plan of the run, and the work that is handed out to an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ludus.collection.branching import BranchPoint
from ludus.collection.options import Options
from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.model import Model
from ludus.rollout import Job, rollout_id
from ludus.task import Task, derive_seed, private

EnvironmentOf = Callable[[dict[str, Any]], Environment]

#: A rollout of an earlier run: its offset in the journal, or its line.
Recorded = int | bytes


#: The upper limit of `--concurrency auto`.
MAX_AUTO_CONCURRENCY = 4096


@dataclass
class CollectionPlan:
    """What a collection plays: its options, the rows, and what was opened for them. `environments` are those of all
    rows. If the rows are `Branches`, the rollouts continue recorded ones. With `checkpoint`, each turn is saved."""

    options: Options
    rows: Rows
    environment_of: EnvironmentOf
    model: Model
    environments: list[Environment] = field(default_factory=list)
    checkpoint: bool = False

    @property
    def concurrency(self) -> int:
        """How many rollouts may be in flight; with `auto` the upper limit."""
        engine = self.options.engine
        return MAX_AUTO_CONCURRENCY if engine.is_adaptive else int(engine.concurrency or self.model.concurrency)

    @property
    def by_group(self) -> bool:
        """Whether an environment has `verify_group`: a resumed run then needs the rollouts that are recorded."""
        return any(environment.resources.by_group for environment in self.environments)


@dataclass(slots=True)
class TaskWork:
    """The repeats of one task that are to be played, each with the number of its attempt.

    `recorded` are the rollouts of earlier runs that `verify_group` must see. An engine in this process gets `task`,
    checked, for its first session, and `point` if the task is a branch point. An engine with processes gets `line`.
    `turns` are the saved turns of repeats that were interrupted, `good` is how many repeats ended well in earlier runs.
    """

    task_id: str
    environment: Environment
    row: dict[str, Any]
    repeats: dict[int, int]
    task: Task | None = None
    recorded: list[Recorded] = field(default_factory=list)
    point: BranchPoint | None = None
    line: bytes = b""
    turns: dict[int, bytes] = field(default_factory=dict)
    good: int = 0

    def jobs(self, seed: int) -> Iterator[Job]:
        """The jobs of the repeats. `seed` is the run's."""
        return map(partial(self.job, seed), self.repeats)

    def job(self, seed: int, repeat: int) -> Job:
        """The job of one repeat, with a task of its own."""
        task_id, environment = self.task_id, self.environment
        task, self.task = self.task or environment.task(private(self.row)), None
        name, own_seed = rollout_id(task_id, repeat), derive_seed(seed, task_id, repeat)
        job = Job(name, task_id, repeat, task, self.row, self.repeats[repeat], own_seed, environment.name)
        if self.turns:
            job.turns = self.turns.get(repeat, b"")
        return job
