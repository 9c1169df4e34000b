"""Rollouts of every built-in environment with right answers, which come from the environment's `qualify.py`."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ludus_qualify.attempts import Attempt, play
from ludus_qualify.oracle import Oracle

from ludus import Environment
from ludus.folder import FILE
from ludus.runtime.imports import BUILT_IN
from ludus.sandbox.choice import find
from ludus.sandbox.resources import SandboxResources

#: Environments that need an external server or library.
ELSEWHERE = ("openenv", "verifiers")
HERE = sorted(path.parent.name for path in BUILT_IN.glob(f"*/{FILE}") if path.parent.name not in ELSEWHERE)
ROWS = 2

Record = dict[str, Any]


def ready(name: str) -> tuple[Environment, Oracle]:
    """An environment with the settings of its qualification, and its oracle. Skips if it needs a missing sandbox."""
    environment = replace(Environment.load(name))
    sandbox = find("bubblewrap")
    if issubclass(environment.resources, SandboxResources) and sandbox.problem is not None:
        pytest.skip(f"bubblewrap: {sandbox.problem}")
    oracle = Oracle.of(environment)
    environment.configure(oracle.settings)
    return environment, oracle


async def records(environment: Environment, oracle: Oracle) -> list[tuple[Attempt, Record]]:
    """Records of the first rows, played with the oracle's script and, for scripts of several turns, its variants.

    Environments that run programs play one row and one variant.
    """
    attempts = list(_attempts(environment, oracle))
    played = await play(environment, attempts, concurrency=1, seed=0)
    found = []
    for attempt in attempts:
        rollout = played[attempt.id]
        assert rollout.error is None, rollout.error
        found.append((attempt, json.loads(rollout.encode())))
    return found


def _attempts(environment: Environment, oracle: Oracle) -> Iterator[Attempt]:
    programs = issubclass(environment.resources, SandboxResources)  # a rollout takes seconds there
    with environment.dataset().open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, 1 if programs else ROWS)]
    for number, row in enumerate(rows):
        task = environment.task(row)
        script = oracle.script(task)
        if script is not None:
            yield Attempt(f"row{number}", row, "oracle", "oracle", script)
            if isinstance(script, list) and len(script) > 1:
                for name, other in itertools.islice(oracle.preserving(task).items(), 1 if programs else None):
                    yield Attempt(f"row{number}", row, "preserving", name, other)


class Clockwork:
    """A game with Gymnasium's interface that cannot be copied, because it holds a lock."""

    def __init__(self) -> None:
        import gymnasium

        self.lock = threading.Lock()
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        """Begin."""
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """End the game if the action is 1."""
        with self.lock:
            return action, float(action), bool(action), False, {}
