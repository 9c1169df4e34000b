"""What the jobs of all frameworks share: the prompt, the options and the meter. Standard library only.

Each framework has its own virtual environment, so a job imports its framework and this file, and nothing of Ludus.
"""

import argparse
import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def prompt(number: int) -> str:
    """The question of one task; the stub server finds the task's number in it."""
    return f"Task <{number}>: repeat the number of the task."


def answer(number: int) -> str:
    """What the stub server answers, and what the verifier wants."""
    return f"answer {number}"


def look_up(number: int) -> str:
    """What the tool of all frameworks returns."""
    return f"the number is {number}"


def options() -> argparse.Namespace:
    """The options of every job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="base URL of the stub server, with /v1")
    parser.add_argument("--rollouts", type=int, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--tool", action="store_true", help="offer a tool, which the stub server calls once")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --output")
    return parser.parse_args()


def _cpu_s() -> float:
    """CPU of this process and of its children that have ended."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)


def measure(collect: Callable[[], Iterable[tuple[int | str, float | None]]]) -> None:
    """Run `collect`, which yields a task's id and its reward (None: failed) for each record, and print a report."""
    cpu, wall = _cpu_s(), time.perf_counter()
    records = collect()
    used: dict[str, Any] = {"start_cpu_s": cpu, "cpu_s": _cpu_s() - cpu, "wall_s": time.perf_counter() - wall}
    used["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used["largest_child_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    found = list(records)
    rewards = [reward for _, reward in found if reward is not None]
    times = Counter(number for number, _ in found)
    used["records"] = len(found)
    used["tasks"] = len(times)
    used["doubled"] = sum(count > 1 for count in times.values())
    used["failed"] = len(found) - len(rewards)
    used["zeros"] = rewards.count(0.0)
    used["mean_reward"] = sum(rewards) / len(rewards) if rewards else None
    print(json.dumps(used), flush=True)
