"""The median time of a verdict on a right answer, over the example rows of each named environment.

The rollout is played once with the right answer that `ludus qualify` uses, so that tools and state are as in a
collection. Then its verifier runs many times, as in `ludus verify`.

python benchmarks/verify_speed.py mcqa calendar
"""

import asyncio
import json
import statistics
import sys
import time
from typing import Any

from ludus_qualify.attempts import Attempt
from ludus_qualify.oracle import Oracle

from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.models.scripted import ScriptedModel
from ludus.rollout import Job
from ludus.runtime.processes import shared_pool
from ludus.runtime.threads import awaited

NAMES = (
    "calendar",
    "math_advanced_calculations",
    "mcqa",
    "structured_outputs",
    "instruction_following",
    "string_match",
)
REPEATS = 50


def verify_seconds(names: tuple[str, ...] = NAMES, repeats: int = REPEATS) -> dict[str, float]:
    """The median time of a verdict for each environment, in seconds."""
    return {name: asyncio.run(_median(name, repeats)) for name in names}


async def _median(name: str, repeats: int) -> float:
    environment = Environment.load(name)
    oracle = Oracle.of(environment)
    environment.configure(oracle.settings)
    times: list[float] = []
    async with shared_pool(), environment.resources.share(environment.config) as shared:
        for task_id, row, task in Rows(environment.dataset(), environment.task):
            script = oracle.script(task)
            if script is None:
                continue
            model = ScriptedModel(Attempt(task_id, row, "oracle", "oracle", script).turn)
            session = environment.resources(environment.config, shared)
            episode = Episode(Job(task_id, task_id, 0, task, row), session, model, environment.limits)
            try:
                times += await _verdicts(episode, environment, repeats)
            finally:
                await awaited(session.close)
    if not times:
        raise ValueError(f"{name}: ludus qualify knows no right answer for any example row")
    return statistics.median(times)


async def _verdicts(episode: Episode, environment: Environment, repeats: int) -> list[float]:
    """Play a rollout and time its verdict `repeats` times; a reward other than 1 is an error."""
    session, task = episode.resources, episode.task
    episode.deadline.start()
    try:
        await awaited(session.open, task)
        episode.offer_tools()
        await environment.agent.act(episode)
    finally:
        episode.deadline.stop()
    response, times = episode.response, []
    for _ in range(repeats):
        began = time.perf_counter()
        verdict: Any = await awaited(session.verify, task, response)
        times.append(time.perf_counter() - began)
        reward = getattr(verdict, "reward", verdict)
        if reward != 1:
            raise ValueError(f"{environment.name}: the right answer earns {reward}")
    return times


def main() -> None:
    print(json.dumps(verify_seconds(tuple(sys.argv[1:]) or NAMES)))


if __name__ == "__main__":
    main()
