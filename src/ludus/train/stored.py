"""Groups of a stored run, as a trainer reads them: the members of `GroupFeed`, from a file instead of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ludus.collection.results import load
from ludus.train.group import TrainingGroup, TrainingMember


def stored_groups(path: str | Path) -> Iterator[TrainingGroup]:
    """The groups of a run: all completed and masked rollouts of each task.

    for group in stored_groups("runs/first/credit"):
        advantages = group.turn_advantages(discount=0.0)
    """
    for number, rollouts in enumerate(load(path).groups()):
        first = rollouts[0]
        yield TrainingGroup(first.task_id, first.job.row, number, [TrainingMember(rollout) for rollout in rollouts])
