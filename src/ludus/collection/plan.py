"""What a collection plays: the plan of the run, and the work that is handed out to an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ludus.collection.branching import BranchPoint
from ludus.collection.chaos import Chaos
from ludus.collection.stragglers import StragglerLimits
from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.model import Model
from ludus.rollout import Job, rollout_id
from ludus.task import Task, derive_seed, private

EnvironmentOf = Callable[[dict[str, Any]], Environment]

#: A rollout of an earlier run: its offset in the journal, or its line.
Recorded = int | bytes


@dataclass
class CollectionPlan:
    """The rows to collect, and the settings of the run.

    With `adaptive`, `concurrency` is the upper limit. With `tokens`, a rollout without token ids is masked. `by_group`
    says that an environment has `verify_group`, so a resumed run needs the journal offsets of recorded rollouts. If the
    rows are `Branches`, the rollouts continue recorded ones. With `checkpoint`, each turn is saved. `stragglers`
    says which rollouts are not waited for, `chaos` which faults are injected. `environments` are those of all rows.
    With `times_steps`, the records say when each step began.
    """

    rows: Rows
    environment_of: EnvironmentOf
    model: Model
    repeats: int = 1
    concurrency: int = 64
    seed: int = 0
    max_attempts: int = 3
    tokens: bool = False
    adaptive: bool = False
    by_group: bool = False
    checkpoint: bool = False
    stragglers: StragglerLimits = field(default_factory=StragglerLimits)
    chaos: Chaos | None = None
    environments: list[Environment] = field(default_factory=list)
    times_steps: bool = False


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
