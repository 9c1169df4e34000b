"""A task of Inspect whose worker dies while a sample is played, once: the file `marker` says that it did."""

import os
import signal
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, TaskState, solver


@solver
def dying(marker: str):
    async def solve(state: TaskState, generate: Generate):
        state = await generate(state)
        if marker and state.sample_id == "2":
            die_once(Path(marker))
        return state

    return solve


def die_once(marker: Path):
    """Kill this process, unless it was killed before."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@task
def dies(marker: str = ""):
    samples = [Sample(id=str(number), input=f"Say {number}", target=str(number)) for number in range(6)]
    return Task(dataset=samples, solver=dying(marker), scorer=includes())
