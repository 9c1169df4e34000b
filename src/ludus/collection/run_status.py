"""The state of a run while it is played, in `status.json` beside its journals, and what limits it now."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ludus.model import ServerLoad
from ludus.store.drafts import write_whole

if TYPE_CHECKING:
    from ludus.collection.collector import Collector

#: Seconds between two writings.
WRITE_SECONDS = 2.0

#: The use of a KV cache from which on it counts as full.
FULL_CACHE = 0.9

#: The share of the rollouts in flight from which on a stage is what a run waits for.
MOST = 0.5


def status_row(collector: Collector) -> dict[str, Any]:
    """The state of a run: its counts, the rollouts in flight by stage, the limit on them, and the endpoints."""
    progress, plan = collector.progress, collector.plan
    limits = [limit for report in progress.reports() if (limit := report.limit) is not None]
    endpoints = collector.plan.model.stats().get("endpoints") or []
    return {
        "pid": os.getpid(),
        "total": progress.total,
        "done": min(collector.metrics.dispatched, progress.total),
        "seconds": time.perf_counter() - progress.started,
        "useful_tokens": progress.useful_tokens,
        "stages": dict(progress.waiting()),
        "limit": sum(limits) if limits else collector.control.limit or plan.concurrency,
        "adaptive": plan.options.engine.is_adaptive,
        "paused": collector.control.paused,
        "workers": len(progress.workers) or 1,
        "endpoints": endpoints,
    }


async def write_status(path: Path, collector: Collector) -> None:
    """Write the state of a run every few seconds, until cancelled. A full disk does not stop the run."""
    while True:
        with contextlib.suppress(OSError):
            write_whole(path, orjson.dumps(status_row(collector)) + b"\n")
        await asyncio.sleep(WRITE_SECONDS)


def server_seconds(status: dict[str, Any]) -> float | None:
    """Seconds of all endpoints together for 1,000 tokens of rollouts with a verdict; None before the first."""
    tokens = status["useful_tokens"]
    return 1000 * len(status["endpoints"]) * status["seconds"] / tokens if tokens else None


def what_limits(status: dict[str, Any], before: Sequence[ServerLoad | None], now: Sequence[ServerLoad | None]) -> str:
    """What limits a run, in a sentence with the flag that changes it. The loads are two reports of its endpoints."""
    stages: dict[str, int] = status["stages"]
    in_flight, known = sum(stages.values()), [load for load in now if load is not None]
    if status["paused"]:
        return "It is paused: continue it in ludus view."
    resting = [endpoint["url"] for endpoint in status["endpoints"] if endpoint.get("resting")]
    if resting:
        share = f"{len(resting)} of {len(status['endpoints'])} endpoints"
        return f"{share} cannot be reached ({resting[0]}): start them, or leave them out of model.base_url."
    if any(_grew(was, load) for was, load in zip(before, now, strict=True)):
        hint = "they take fewer until it ends" if status["adaptive"] else "use --concurrency auto, or a lower number"
        return f"The KV cache of the servers: requests are preempted and start over; {hint}."
    if known and sum(load.waiting or 0 for load in known) > len(known):
        hint = "add endpoints to model.base_url" if status["adaptive"] else "--concurrency auto would not queue there"
        return f"The model servers: requests wait there; {hint}."
    if status["done"] + in_flight >= status["total"]:
        return "The end of the run: no new rollout is left to begin."
    stage, count = max(stages.items(), key=lambda entry: entry[1], default=("model", 0))
    if stage == "model" and in_flight and count >= MOST * in_flight:
        if known and max(load.cache or 0 for load in known) >= FULL_CACHE:
            return "The KV cache of the servers is full, as it should be: add endpoints to model.base_url for more."
        if in_flight >= status["limit"] and not status["adaptive"]:
            return f"--concurrency {status['limit']}: the servers have room for more, so raise it or use auto."
        if status["adaptive"]:
            return "The model's answers: --concurrency auto still looks for the number that fills the servers."
        return "The model's answers: raise --concurrency if the servers have room."
    if in_flight and count >= MOST * in_flight:
        flag = {"tool": "--concurrency", "verify": "--workers", "group": "limits.group"}.get(stage, "--workers")
        return f"Stage {stage}, where {count} of {in_flight} rollouts are: raise {flag}."
    return "Nothing in particular: rollouts are spread over their stages."


def _grew(was: ServerLoad | None, load: ServerLoad | None) -> bool:
    return was is not None and load is not None and (load.preempted or 0) > (was.preempted or 0)
