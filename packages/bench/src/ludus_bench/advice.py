"""The first bottleneck of a measured point, and what to do about it, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: A process is saturated if it uses this share of the core time that it can get.
FULL = 0.85

#: A process competes for the cores if it runs less than this share of the time in which it could run.
CROWDED = 0.7

#: Waiting up to this share of a rollout's time is ignored.
LITTLE_WAIT = 0.15


@dataclass(frozen=True)
class Bottleneck:
    """`part` is one of `failures`, `cores`, `collector`, `workers`, `stub`, `model`, `environment`, `slots`."""

    part: str
    advice: str


def first_bottleneck(point: dict[str, Any], cores: int) -> Bottleneck:
    """What limits the rollouts a second of a point."""
    used, workers = point["cores"], point["workers"]
    if point["failed"]:
        kind = max(point["failures"].items(), key=lambda item: item[1])[0] if point["failures"] else "no reason"
        return Bottleneck(
            "failures",
            f"{point['failed']:,} of {point['rollouts']:,} rollouts failed, most with {kind}: fix that first",
        )
    total = point["service_s"] + point["wait_s"]
    if total and point["wait_s"] <= LITTLE_WAIT * total:
        return Bottleneck("slots", "the model's delay, and nothing else: raise --in-flight")
    if used["busiest_stub"] >= FULL:
        return Bottleneck("stub", "the stub model uses a whole core: add --stubs, or measure with --no-http")
    share = point["cpu_share"]["workers" if workers > 1 else "collector"]
    if share is not None and share < CROWDED:
        what = "our processes, the stub and other programs together"
        return Bottleneck(
            "cores", f"{what} need more than {cores} cores (ours got one {share:.0%} of the time): use a larger machine"
        )
    each_worker = used["workers"] / workers if workers > 1 else 0.0
    if used["collector"] + used["workers"] >= FULL * cores:
        return Bottleneck("cores", f"all {cores} cores are busy: use a larger machine, --ray or --shard")
    if workers > 1 and _is_full(used["collector"], point["cpu_share"]["collector"]):
        return Bottleneck("collector", "the collecting process uses a whole core: split the run with --shard")
    if workers > 1 and _is_full(each_worker, point["cpu_share"]["workers"]):
        return _busy("workers", "each worker uses its core", workers, cores)
    if workers == 1 and _is_full(used["collector"], point["cpu_share"]["collector"]):
        return _busy("collector", "the collector uses its core", workers, cores)
    stage = _slowest_stage(point)
    if stage == "model":
        late = f"{point['wait_s']:.2f} s later than the model's delay"
        return Bottleneck("model", f"answers come {late}, but no process is saturated: add --stubs, or vary --delay")
    return Bottleneck("environment", f"stage {stage} of the environment waits for something else: see ludus profile")


def _is_full(cores: float, share: float | None) -> bool:
    """Whether a process used all the CPU time that it could get."""
    return cores >= FULL * (share if share is not None else 1.0)


def _busy(part: str, what: str, workers: int, cores: int) -> Bottleneck:
    if workers < cores:
        return Bottleneck(part, f"{what}: add --workers {cores} (this machine has {cores} cores)")
    return Bottleneck(part, f"{what}, and this machine has {cores} cores: use a larger one, --ray or --shard")


def _slowest_stage(point: dict[str, Any]) -> str:
    stages = {name: seconds.get("mean", 0.0) for name, seconds in point["stages_s"].items() if name != "connect"}
    if "model" in stages:
        stages["model"] = max(0.0, stages["model"] - point["model_delay_s"])
    return max(stages, key=lambda name: stages[name]) if stages else "open"
