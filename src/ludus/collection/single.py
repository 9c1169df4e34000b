"""One rollout of one row, played as in a collection and not stored: for a person who takes part in it."""

from __future__ import annotations

from typing import Any

from ludus.collection.collector import Collector
from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.model import Model
from ludus.rollout import Rollout


async def play_one(environment: Environment, row: dict[str, Any], model: Model, seed: int = 0) -> Rollout:
    """Collect one task with one repeat: the collector opens and closes the session as always."""
    played: list[Rollout] = []

    async def keep(rollout: Rollout) -> None:
        played.append(rollout)

    rows = Rows([row], environment.task)
    plan = CollectionPlan(Options(concurrency=1, seed=seed), rows, lambda _: environment, model)
    collector = Collector(plan, sink=keep)
    collector.progress.total = 1
    await collector.run()
    return played[0]
