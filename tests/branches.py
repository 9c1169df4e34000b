"""Helpers of the branching tests: an environment that counts its events, recorded rollouts, and their branches."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from ludus import Game, Resources, Response, Rollout, ScriptedModel, Step, tool
from ludus.collection.collection import Collection
from ludus.collection.options import Options

Row = dict[str, Any]
ASK = {"responses_create_params": {"input": "go"}}


class Tally(Resources):
    """A running total and random draws. The class counts sessions and calls of `add`."""

    events: ClassVar[Counter[str]] = Counter()

    async def open(self, task: Any) -> None:
        self.events["opened"] += 1
        self.total, self.generator = 0, random.Random(self.seed)

    @tool
    async def add(self, number: int) -> int:
        """Add a number."""
        self.events["added"] += 1
        self.total += number
        return self.total

    @tool
    async def draw(self) -> int:
        """Draw a random number."""
        return self.generator.randrange(1000)

    async def verify(self, task: Any, response: Response) -> float:
        return float(self.total)


class ClosingTally(Tally):
    """A `Tally` with `close`, so that the default `fork` refuses to copy it."""

    async def close(self) -> None:
        self.events["closed"] += 1


class Guessing(Game):
    """Guess a number that comes from the seed. Some turns have no observation."""

    async def reset(self, task: Any) -> str | None:
        self.number, self.tries = random.Random(self.seed).randrange(4), 0
        return "Guess." if self.number % 2 else None

    async def step(self, task: Any, response: Response) -> Step:
        self.tries += 1
        if response.output_text == str(self.number):
            return Step(reward=1.0 / self.tries, terminated=True)
        return Step(f"Not {response.output_text}." if self.tries % 2 else None, reward=-0.1)


def add(number: int) -> Row:
    return {"call": "add", "arguments": {"number": number}}


TWO_AT_ONCE = {"calls": [{"name": "add", "arguments": {"number": 2}}, {"name": "draw"}]}
SCRIPT: list[Any] = [add(1), TWO_AT_ONCE, add(4), "Done."]


def collected(environment: Any, script: Any, **options: Any) -> list[Rollout]:
    """Collect with a scripted model, and return all rollouts, failed ones included."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script if callable(script) else [*script])
    collection = Collection(environment, Options(model=model, **options))
    asyncio.run(collection.prepare(sink=collection.add_rollout).run())
    return collection.rollouts


def recorded(folder: Path, environment: Any = Tally, script: Any = SCRIPT, **options: Any) -> Path:
    """Collect with the script, and return the path of the rollouts."""
    rollouts = collected(environment, script, **{"input": [ASK], **options})
    folder.mkdir(exist_ok=True)
    path = folder / "rollouts.jsonl"
    path.write_bytes(b"".join(rollout.encode() + b"\n" for rollout in rollouts))
    Tally.events.clear()
    return path


def branched(path: Path, turn: int, script: Any = SCRIPT, environment: Any = Tally, **options: Any) -> list[Rollout]:
    """Branch each rollout of a file after `turn` model calls, and return the branches."""
    return collected(environment, script, branch=path, turn=turn, **options)


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def outputs(rollout: Rollout) -> list[Row]:
    assert rollout.response is not None
    return list(rollout.response.output)


def gist(row: Row) -> Row:
    """The part of a row that a reproduced rollout must repeat exactly."""
    return {
        "output": row["response"]["output"],
        "metadata": row["response"].get("metadata"),
        **{key: row.get(key) for key in ("reward", "stop_reason", "turn_rewards", "reward_components", "outcome")},
        "calls": [call["items"] for call in row["model_calls"]],
    }
