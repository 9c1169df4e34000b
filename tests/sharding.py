"""A small collection that tests split into shards: what the model answers depends on the seed and on nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

import ludus
from ludus import Failure, Request, Resources, Response, ScriptedModel, Verdict

#: Fields of a record that depend on the clock.
TIMES = ("timings",)


class Dice(Resources):
    """The reward is a fraction that no float holds exactly, so that the order of a sum shows."""

    async def verify(self, task: Any, response: Response) -> Verdict:
        said = int(response.output_text)
        return Verdict(said % 10 / 10, components={"third": said % 3 / 3}, mask="unlucky" if said % 13 == 0 else None)


class Together(Resources):
    """The reward is a number's distance from the mean of all repeats."""

    async def verify_group(self, task: Any, responses: list[Response]) -> list[float | Verdict]:
        said = [int(response.output_text) % 7 for response in responses]
        return [Verdict(each - sum(said) / len(said), size=len(said)) for each in said]


def roll(request: Request) -> str:
    """The seed, as the answer; one seed of eleven fails."""
    seed = request.seed or 0
    if seed % 11 == 0:
        raise Failure("http_500", "down")
    return str(seed)


def model(name: str = "dice") -> ScriptedModel:
    return ScriptedModel(roll, name)


def tasks(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"responses_create_params": {"input": f"Roll {number}"}, **fields} for number in range(count)]


def collect(output: Path | None, rows: list[dict[str, Any]], **options: Any) -> ludus.Collection:
    environment = options.pop("environment", Dice)
    settings = {"model": model(), "repeats": 3, "concurrency": 1, **options}
    return ludus.collect(environment, input=rows, output=output, **settings)


def collect_shards(folder: Path, count: int, rows: list[dict[str, Any]], **options: Any) -> list[Path]:
    """Collect all shards, and return their folders."""
    folders = [folder / f"shard-{number}" for number in range(1, count + 1)]
    for number, output in enumerate(folders, start=1):
        collect(output, rows, shard=f"{number}/{count}", **options)
    return folders


def rows_of(*folders: Path, name: str = "rollouts.jsonl") -> list[dict[str, Any]]:
    """The rows of the journals, without the times, ordered by rollout and attempt."""
    found = [orjson.loads(line) for folder in folders for line in (folder / name).read_bytes().splitlines()]
    for row in found:
        for key in TIMES:
            row.pop(key, None)
    return sorted(found, key=lambda row: (row["rollout_id"], row["attempt"]))
