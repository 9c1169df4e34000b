"""All points of a curve, one after the other: stub servers, measured processes, and the reasons for skipped points."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from ludus.environment import Environment
from ludus.errors import UserError
from ludus.runtime.running import FILES_IN_RESERVE, raise_file_limit
from ludus_bench.advice import first_bottleneck
from ludus_bench.delays import Delay
from ludus_bench.point import PointPlan
from ludus_bench.stubs import program, stub_servers, stubs_needed
from ludus_bench.usage import available_memory

IN_FLIGHT = (1000, 4000, 16_000, 65_000)

#: Connections per rollout in flight: with several stubs some are idle.
_SPARE = 1.2

#: Rollouts per rollout in flight: at least two, so that every slot is reused; more for small points, where start and
#: end dominate.
FEWEST_ROUNDS, MOST_ROUNDS, ENOUGH_ROLLOUTS = 2, 8, 4000

_END_SECONDS = 15.0
_MOST_WORKERS = 256

Tell = Callable[[str], object]


@dataclass
class Bench:
    """Measures an environment with a stub model at several numbers of rollouts in flight.

    Bench("mcqa", in_flight=[64, 256], delay="0.1").run()["points"][0]["rollouts_per_second"]

    Without `workers` there is one process, or as many as the limit on open files demands. `tell` gets lines of
    progress. `rollouts` is for each point; by default two to eight times as many as are in flight.
    """

    environment: str
    in_flight: list[int] = field(default_factory=lambda: list(IN_FLIGHT))
    rollouts: int | None = None
    workers: int | None = None
    ray: str | None = None
    http: bool = True
    stubs: int | None = None
    delay: str = "1"
    turns: int = 1
    input: str | None = None
    dataset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    tell: Tell = lambda _: None

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if not self.in_flight or min(self.in_flight) < 1:
            raise UserError("the number of rollouts in flight must be at least 1", "Example: --in-flight 1000,4000")
        self._delay = Delay.parse(self.delay)

    def run(self) -> dict[str, Any]:
        """Measure all points, smallest first."""
        name, load = Environment.load(self.environment).name, round(os.getloadavg()[0], 1)  # before our own load
        points: list[dict[str, Any]] = []
        left_out: list[dict[str, Any]] = []
        for in_flight in sorted(set(self.in_flight)):
            workers = self.workers or (self._workers_needed(in_flight) if self.ray is None else 1)
            reason = self._reason_against(in_flight, workers, points)
            if reason is not None:
                self.tell(f"{in_flight:,} in flight: left out, {reason}")
                left_out.append({"in_flight": in_flight, "reason": reason})
                continue
            points.append(self._point(in_flight, workers))
        cores = os.cpu_count() or 1
        for point in points:
            point["bottleneck"] = vars(first_bottleneck(point, cores))
        return {
            "environment": name,
            "taken": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "machine": {"cores": cores, "system": platform.system(), "load": load},
            "engine": "ray"
            if self.ray is not None
            else "workers"
            if any(p["workers"] > 1 for p in points)
            else "process",
            "model": "http stub" if self.http else "stub in the playing processes",
            "delay": {"spec": self.delay, "mean_s": self._delay.mean},
            "points": points,
            "left_out": left_out,
        }

    def _point(self, in_flight: int, workers: int) -> dict[str, Any]:
        plan = PointPlan(
            self.environment,
            in_flight,
            self.rollouts or default_rollouts(in_flight),
            workers,
            self.ray,
            delay=self.delay,
            turns=self.turns,
            input=self.input,
            dataset=self.dataset,
            settings=self.settings,
        )
        if not self.http:
            return self._measure(plan)
        count = self.stubs or stubs_needed(in_flight)
        self.tell(f"{in_flight:,} in flight: starting {count} stub model server{'s' * (count > 1)}")
        with stub_servers(count, in_flight, self.delay, self.turns) as stubs:
            return self._measure(replace(plan, stubs=stubs))

    def _measure(self, plan: PointPlan) -> dict[str, Any]:
        processes = f"{plan.workers} worker processes" if plan.workers > 1 else "one process"
        self.tell(f"{plan.in_flight:,} in flight: starting {processes} for {plan.rollouts:,} rollouts")
        with _process(plan) as lines:
            for line in lines:
                message = orjson.loads(line)
                if "error" in message:
                    raise UserError(message["error"])
                if "result" in message:
                    result: dict[str, Any] = message["result"]
                    return result
                self.tell(_progress(plan.in_flight, **message["progress"]))
        raise UserError(f"the process that measured {plan.in_flight:,} in flight died", "See its last lines above")

    def _workers_needed(self, in_flight: int) -> int:
        """How many processes the limit on open files demands."""
        files = raise_file_limit()
        if not self.http or files < 0:
            return 1
        connections = max(1, files - FILES_IN_RESERVE)
        return max(1, -(-round(in_flight * _SPARE) // connections)) if in_flight > connections / _SPARE else 1

    def _reason_against(self, in_flight: int, workers: int, points: list[dict[str, Any]]) -> str | None:
        if self.ray is None and workers < (needed := self._workers_needed(in_flight)):
            return (
                f"this system allows {raise_file_limit():,} open files a process: add --workers {needed} or --no-http"
            )
        if workers > _MOST_WORKERS:
            return f"{workers:,} worker processes would be needed: raise the limit on open files (ulimit -n)"
        free = available_memory()
        if points and free is not None and self.ray is None:
            expected = points[-1]["memory_bytes"] * in_flight
            if expected > 0.8 * free:
                return f"it would take {expected / 1e9:.1f} GB and this machine has {free / 1e9:.1f} GB free"
        return None


def default_rollouts(in_flight: int) -> int:
    """How many rollouts a point plays unless told otherwise."""
    return in_flight * min(MOST_ROUNDS, max(FEWEST_ROUNDS, ENOUGH_ROLLOUTS // in_flight))


def _progress(in_flight: int, finished: int, total: int, stages: dict[str, int]) -> str:
    waiting = ", ".join(f"{stage} {count:,}" for stage, count in sorted(stages.items(), key=lambda entry: -entry[1]))
    now = "ending" if finished == total else f"waiting for {waiting or 'processes to start'}"
    return f"{in_flight:,} in flight: {finished:,} of {total:,} rollouts, {now}"


@contextmanager
def _process(plan: PointPlan) -> Iterator[Iterator[bytes]]:
    """Run a point in its process and yield the lines that it writes."""
    process = subprocess.Popen(program("point"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(plan.encode())
        process.stdin.close()
        yield iter(process.stdout)
    finally:
        try:
            process.wait(_END_SECONDS)  # it has sent its result, or got Ctrl-C too
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
