"""What the jobs of all frameworks share: the prompt, the options and the report. Standard library only.

Each framework has its own virtual environment, so a job imports its framework and this file, and nothing of Ludus.
A job plays `--rollouts` tasks, `--concurrency` at once, against the stub server at `--url`, and leaves its records in
`--output`. Time, CPU and memory are measured from outside, by `process_tree.py` and by the stub server.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

#: How many calls of a tool the model makes before it answers.
TOOL_CALLS = {"single": 0, "tool": 1, "ten": 9, "harness": 2}


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
    parser.add_argument("--job", choices=TOOL_CALLS, default="single", help="how the rollouts look")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --output")
    given = parser.parse_args()
    given.tool = given.job in ("tool", "ten")
    return given


def report(records: Iterable[tuple[int | str, float | None]]) -> None:
    """Print what the framework recorded: for each record the task's id and its reward (None: failed)."""
    found = list(records)
    rewards = [reward for _, reward in found if reward is not None]
    times = Counter(str(task) for task, _ in found)
    counts = {
        "records": len(found),
        "tasks": len(times),
        "doubled": sum(count > 1 for count in times.values()),
        "failed": len(found) - len(rewards),
        "zeros": rewards.count(0.0),
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
    }
    print("\n" + json.dumps(counts), flush=True)
