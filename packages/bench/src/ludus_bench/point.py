"""One point of a curve: a collection with so many rollouts in flight, in a process of its own.

A fresh process has no heap, caches or connections from earlier points. It reads a `PointPlan` from stdin and writes
lines of JSON to stdout: `progress` while it runs, then `result`, or `error` for a mistake that a user can fix. The
environment's own prints go to stderr.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ludus.collection.collection import Collection
from ludus.collection.collector import Collector
from ludus.collection.options import Options
from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus.runtime.running import run
from ludus_bench.delays import Delay
from ludus_bench.profile.load import repeats_and_limit
from ludus_bench.stub_model import StubModel
from ludus_bench.stubs import stub_stats
from ludus_bench.usage import UsageMeter

_TELL_EVERY, _LOOK_EVERY = 1.0, 0.02

Tell = Callable[[dict[str, Any]], None]


@dataclass
class PointPlan:
    """What to measure. `stubs` are the ports of each stub server; without them the stub answers in process."""

    environment: str
    in_flight: int
    rollouts: int
    workers: int = 1
    ray: str | None = None
    stubs: list[list[int]] = field(default_factory=list)
    delay: str = "0"
    turns: int = 1
    input: str | None = None
    dataset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def options(self, output: Path, **more: Any) -> Options:
        """The options of the collection."""
        urls = [f"http://127.0.0.1:{port}/v1" for ports in self.stubs for port in ports]
        settings: dict[str, Any] = {"type": "openai", "model": "stub", "api": "responses", "base_url": urls}
        model: Any = settings if urls else StubModel(Delay.parse(self.delay), self.turns)
        return Options(
            model=model,
            input=self.input,
            dataset=self.dataset,
            output=output,
            concurrency=self.in_flight,
            workers=self.workers if self.ray is None or self.workers > 1 else None,
            ray=self.ray,
            settings=self.settings,
            max_attempts=1,
            **more,
        )

    def encode(self) -> bytes:
        """The plan as one line."""
        return orjson.dumps(asdict(self)) + b"\n"


class Point:
    """Measures one point."""

    def __init__(self, plan: PointPlan, tell: Tell) -> None:
        self._plan, self._tell, self._meter = plan, tell, UsageMeter()

    async def run(self) -> dict[str, Any]:
        """Play the rollouts and return what they took."""
        plan = self._plan
        with tempfile.TemporaryDirectory(prefix="ludus-bench-") as folder:
            output = Path(folder) / "run"
            rows = Collection(plan.environment, plan.options(output)).rows.survey().rows
            options = plan.options(output, **repeats_and_limit(rows, plan.rollouts))
            collection = Collection(plan.environment, options)
            collector = collection.prepare()
            before = stub_stats(plan.stubs) if plan.stubs else None
            self._began = time.perf_counter()
            self._meter.start()
            await collection.run(collector, self._watch)
            seconds = collector.progress.last_change - self._began  # without the workers' shutdown
            self._meter.stop()
            journal = sum((output / name).stat().st_size for name in ("rollouts.jsonl", "failures.jsonl"))
        after = stub_stats(plan.stubs) if plan.stubs else None
        stub = {key: after[key] - before[key] for key in after} if after and before else None
        return self._result(collection, seconds, journal, stub)

    async def _watch(self, collector: Collector) -> None:
        """Begin to measure when the workers are ready; report progress."""
        sampling = asyncio.create_task(self._meter.sample())
        told, waits = 0.0, self._plan.workers > 1 or self._plan.ray is not None
        try:
            while True:
                await asyncio.sleep(_LOOK_EVERY)
                now, progress = time.perf_counter(), collector.progress
                if waits and progress.workers_ready is not None:
                    self._began, waits = progress.workers_ready, False
                    self._meter.start()
                if now - told >= _TELL_EVERY:
                    told, stages = now, dict(progress.waiting())
                    self._tell({"progress": {"finished": progress.finished, "total": progress.total, "stages": stages}})
        finally:
            sampling.cancel()

    def _result(
        self, collection: Collection, seconds: float, journal: int, stub: dict[str, float] | None
    ) -> dict[str, Any]:
        plan, meter, metrics = self._plan, self._meter, collection.metrics
        counts, times = metrics["counts"], metrics["seconds"]
        rollouts = counts["dispatched"]
        calls = metrics["turns"].get("mean", 0.0)
        delay = stub["delayed_s"] / rollouts if stub is not None else Delay.parse(plan.delay).mean * calls
        cpu = (meter.cpu_s + meter.children_cpu_s) / rollouts
        in_path = meter.children_cpu_s / rollouts if plan.workers > 1 else cpu
        total = times.get("total", {}).get("mean", 0.0)
        service = min(total, delay + in_path)
        return {
            "in_flight": plan.in_flight,
            "workers": plan.workers,
            "stubs": len(plan.stubs),
            "rollouts": rollouts,
            "failed": counts["failed"],
            "failures": metrics["failures"],
            "seconds": round(seconds, 3),
            "rollouts_per_second": rollouts / seconds,
            "calls_per_rollout": calls,
            "rollout_s": times.get("total"),
            "stages_s": {
                name: seconds for name, seconds in times.items() if isinstance(seconds, dict) and name != "total"
            },
            "model_delay_s": delay,
            "service_s": service,
            "wait_s": total - service,
            "stub_late_s": stub["late_s"] / rollouts if stub is not None else 0.0,
            "cpu_s": {
                "collector": meter.cpu_s / rollouts,
                "workers": meter.children_cpu_s / rollouts,
                "stub": stub["cpu_s"] / rollouts if stub is not None else 0.0,
            },
            "cores": {
                "collector": meter.cpu_s / seconds,
                "workers": meter.children_cpu_s / seconds,
                "busiest_stub": stub["busiest_cpu_s"] / seconds if stub is not None else 0.0,
            },
            "cpu_share": {"collector": meter.cpu_share, "workers": meter.children_cpu_share},
            "memory_bytes": meter.memory_growth / min(plan.in_flight, rollouts),
            "journal_bytes": journal / rollouts,
            "http_bytes": (stub["received_bytes"] + stub["sent_bytes"]) / rollouts if stub is not None else 0.0,
            "loop_lag_s": metrics["loop"]["lag"],
            "warnings": collection.warnings,
        }


def main() -> None:
    """The program of a point."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as channel:
        os.dup2(2, 1)

        def tell(message: dict[str, Any]) -> None:
            channel.write(encode(message) + b"\n")

        try:
            plan = PointPlan(**orjson.loads(sys.stdin.buffer.readline()))
            tell({"result": run(Point(plan, tell).run())})
        except UserError as error:
            tell({"error": str(error)})
        except (KeyboardInterrupt, BrokenPipeError):  # the bench reports it, or is gone
            os._exit(1)
