"""An environment under load: sessions a second, the slowest tools and verdicts, memory, and what blocked the loop.

The collector plays the rollouts, so the figures are those of a real collection on this machine, in this process. The
model answers at once, so the environment takes all the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.data.row_environments import EnvironmentSpec
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.resources import Resources
from ludus.rollout import Job, Rollout
from ludus.runtime.running import run_to_end
from ludus.store.statistics import Distribution
from ludus.tools import ToolError
from ludus_bench.profile.held import memory_per_session
from ludus_bench.profile.synthetic import SyntheticModel

SESSIONS = 1000
HELD_SESSIONS = 100
SHARES = (0.5, 0.95, 0.99)

#: How many tools are told apart.
MAX_TOOLS = 1000

_BATCH = 1024


class Times:
    """Distributions of times, by name. Times are added in batches."""

    def __init__(self) -> None:
        self._distributions: dict[str, Distribution] = {}
        self._pending: dict[str, list[float]] = {}

    def add(self, name: str, seconds: float) -> None:
        """Add one time."""
        pending = self._pending.get(name)
        if pending is None:
            if len(self._pending) >= MAX_TOOLS:
                name = "other"
            pending = self._pending.setdefault(name, [])
        pending.append(seconds)
        if len(pending) >= _BATCH:
            self._flush(name)

    def summary(self) -> dict[str, dict[str, float]]:
        """The distribution of each."""
        for name in self._pending:
            self._flush(name)
        return {name: distribution.summary(SHARES) for name, distribution in sorted(self._distributions.items())}

    def _flush(self, name: str) -> None:
        if self._pending[name]:
            self._distributions.setdefault(name, Distribution()).add(self._pending[name])
            self._pending[name] = []


class Load:
    """Puts load on an environment. Without a `model`, tools are called with dummy arguments.

    load = Load("example_session_state_mgmt", sessions=500)
    asyncio.run(load.run())["sessions_per_second"]
    """

    def __init__(
        self,
        environment: EnvironmentSpec,
        model: str | Model = "scripted",
        *,
        sessions: int = SESSIONS,
        concurrency: int | None = None,
        input: str | Path | Iterable[dict[str, Any]] | None = None,
        dataset: str | None = None,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if sessions < 1:
            raise UserError(f"sessions must be at least 1, not {sessions}")
        self._model = SyntheticModel() if model == "scripted" else open_model(model)
        self._tools, self._stages = Times(), Times()
        self._errors: Counter[str] = Counter()
        self._jobs: list[Job] = []
        timed = _timed(Environment.load(environment), self._tools, self._errors)
        self._options: dict[str, Any] = {
            "model": self._model,
            "input": input,
            "dataset": dataset,
            "seed": seed,
            "settings": settings,
            "concurrency": concurrency or self._model.concurrency,
            "max_attempts": 1,
        }
        self._timed, self._sessions = timed, sessions

    async def run(self) -> dict[str, Any]:
        """Play the sessions and return their figures."""
        rows = Collection(self._timed, Options(**self._options)).rows.survey().rows
        collection = Collection(self._timed, Options(**self._options, **repeats_and_limit(rows, self._sessions)))
        collector, began = collection.prepare(sink=self._count), perf_counter()
        await collection.run(collector)
        seconds = perf_counter() - began
        metrics, environment = collection.metrics, collection.environments()[0]
        tools = self._tools.summary()  # before memory is measured, which slows every call down
        errors = dict(self._errors)
        memory = await memory_per_session(environment, self._model, self._jobs) if self._jobs else None
        return {
            "environment": environment.name,
            "model": self._model.name,
            "concurrency": self._options["concurrency"],
            "counts": metrics["counts"],
            "failures": metrics["failures"],
            "seconds": round(seconds, 3),
            "sessions_per_second": metrics["counts"]["dispatched"] / seconds,
            "stages": self._stages.summary(),
            "tools": {name: {**times, "errors": errors[name]} for name, times in tools.items()},
            "tool_errors": metrics["tool_errors"],
            "memory": memory,
            "loop": metrics["loop"],
            "warnings": collection.warnings,
        }

    async def _count(self, rollout: Rollout) -> None:
        for stage, seconds in rollout.timings.items():
            self._stages.add(stage, seconds)
        if len(self._jobs) < HELD_SESSIONS and rollout.error is None:
            self._jobs.append(rollout.job)


def repeats_and_limit(rows: int, rollouts: int) -> dict[str, Any]:
    """The options with which a dataset of so many rows makes at least so many rollouts."""
    return {"repeats": math.ceil(rollouts / rows), "limit": min(rows, rollouts)}


def load_environment(environment: EnvironmentSpec, model: str | Model = "scripted", **options: Any) -> dict[str, Any]:
    """Put load on an environment and return the result. Keyword arguments are those of `Load`."""
    load = Load(environment, model, **options)
    report: dict[str, Any] = run_to_end(load.run())
    return report


def _timed(environment: Environment, times: Times, errors: Counter[str]) -> Environment:
    """A copy of an environment whose sessions keep the time of each tool call."""
    own: Any = environment.resources

    class TimedResources(own):  # type: ignore[misc]
        """The environment's resources, with a clock around each tool."""

        async def call(self, name: str, arguments: str) -> str:
            """Run a tool and keep its time."""
            began = perf_counter()
            output: str = await super().call(name, arguments)
            times.add(name, perf_counter() - began)
            errors[name] += isinstance(output, ToolError)
            return output

    copied = environment.copy()
    resources: type[Resources] = TimedResources
    resources.__qualname__, resources.__name__ = own.__qualname__, own.__name__
    copied.resources = resources
    return copied
