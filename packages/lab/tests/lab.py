"""What the tests of the lab share with `make lab` (`run_lab.py`)."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
from ludus_lab.needs import missing
from ludus_qualify.attempts import Attempt, play
from ludus_qualify.oracle import Oracle

from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.folder import folders


def needs_installed(package: str, *names: str) -> pytest.MarkDecorator:
    """A mark that skips a test where the environment lacks a need, of these `names` only if there are any."""
    lacking = {name: command for name, command in missing(package) if not names or name in names}
    reason = "; ".join(f"needs {name}: {command}" for name, command in lacking.items())
    return pytest.mark.skipif(bool(lacking), reason=reason)


def names() -> list[str]:
    """The environments of the lab."""
    return sorted(name for name, folder in folders().items() if folder.parent.name == "ludus_lab")


async def oracle_rewards(
    name: str, *, sessions: int = 1, at_once: int = 1, dataset: str | None = None, **settings: Any
) -> list[float]:
    """The rewards of the oracle in so many sessions, over the first rows that it can answer, again and again."""
    environment = Environment.load(name).copy()
    oracle = Oracle.of(environment)
    environment.configure({**oracle.settings, **settings})
    rows = Rows(environment.rows(dataset), environment.task, 8, 0, environment.with_prompt)
    scripts = ((task_id, row, oracle.script(task)) for task_id, row, task in rows)
    known = [(task_id, row, script) for task_id, row, script in scripts if script is not None]
    if not known:
        raise UserError(f"{name}: the oracle answers none of the first rows")
    attempts = [
        Attempt(task_id, row, "oracle", "oracle", script, number)
        for number, (task_id, row, script) in zip(range(sessions), cycle(known), strict=False)
    ]
    rollouts = (await play(environment, attempts, concurrency=at_once, seed=0)).values()
    errors = [str(rollout.error) for rollout in rollouts if rollout.reward is None]
    if errors:
        raise UserError(f"{name}: {len(errors)} of {sessions} rollouts have no reward, first: {errors[0]}")
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]
