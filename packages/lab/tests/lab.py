"""What the tests of the lab share, and what `make lab` plays: `python packages/lab/tests/lab.py`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from ludus_lab.needs import missing

from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.folder import folders
from ludus.qualify.attempts import Attempt, play
from ludus.qualify.oracle import Oracle


def needs_installed(package: str) -> pytest.MarkDecorator:
    """A mark that skips a test where the environment lacks a package or a program, with the command that helps."""
    lacking = dict(missing(package))
    reason = "; ".join(f"needs {name}: {command}" for name, command in lacking.items())
    return pytest.mark.skipif(bool(lacking), reason=reason)


def names() -> list[str]:
    """The environments of the lab."""
    return sorted(name for name, folder in folders().items() if folder.parent.name == "ludus_lab")


async def oracle_reward(name: str, **settings: Any) -> float:
    """The reward of the oracle on the first row that it can answer."""
    environment = Environment.load(name).copy()
    oracle = Oracle.of(environment)
    environment.configure({**oracle.settings, **settings})
    for task_id, row, task in Rows(environment.rows(None), environment.task, 8, 0, environment.with_prompt):
        if (script := oracle.script(task)) is not None:
            played = await play(environment, [Attempt(task_id, row, "oracle", "oracle", script)], concurrency=1, seed=0)
            (rollout,) = played.values()
            if rollout.reward is None:
                raise UserError(f"{name}: {rollout.error}")
            return rollout.reward
    raise UserError(f"{name}: the oracle answers none of the first rows")


def main() -> int:
    """Play one rollout of each environment's oracle and print its reward. What is not installed is named."""
    wrong = 0
    for name in names():
        lacking = [f"{need} ({command})" for need, command in missing(f"ludus_lab.{name}")]
        if lacking:
            print(f"{name}: not played, needs {', '.join(lacking)}")
            continue
        try:
            reward = asyncio.run(oracle_reward(name))
        except UserError as error:
            print(f"{name}: {error}")
            wrong += 1
            continue
        print(f"{name}: the oracle's rollout earned {reward:g}")
        wrong += reward < Environment.load(name).pass_reward
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
