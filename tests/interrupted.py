"""Helpers of the checkpoint tests: collections that are interrupted at a chosen turn, and what a resumed one asks."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import orjson
from waiting import until_async

from ludus import Game, Resources, Response, ScriptedModel, Step, tool
from ludus.agents.user import UserRole, user_tool, user_tools
from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.model import Request

TURNS = 6


class Ledger(Resources):
    """A running total and a random draw with each addition."""

    extra: ClassVar[int] = 0  #: what a test adds to every output, to make the tools drift

    async def open(self, task: Any) -> None:
        self.total, self.generator = 0, random.Random(self.seed)

    @tool
    async def add(self, number: int) -> str:
        """Add a number."""
        self.total += number
        if number == 4:
            raise ValueError("not four")
        return f"{self.total + self.extra} {self.generator.randrange(1000)}"

    async def verify(self, task: Any, response: Response) -> float:
        return self.total / 100


class Compared(Ledger):
    """Judges the rollouts of a task together."""

    verify = Resources.verify

    async def verify_group(self, task: Any, responses: list[Response]) -> list[Any]:
        return [len(response.output_text) / 100 for response in responses]


class Talk(Ledger):
    """Has a user with a tool of its own, which changes the session."""

    @user_tool
    async def look(self) -> int:
        """Look at the total."""
        self.total += 10
        return self.total

    def user(self, task: Any) -> UserRole:
        return UserRole("You are a user.", tools=user_tools(self))


class Climb(Game):
    """Goes on until the sum of all answers passes a number that the seed chose."""

    async def reset(self, task: Any) -> str:
        self.top, self.height = random.Random(self.seed).randrange(15, 18), 0
        return f"Climb to {self.top}."

    async def step(self, task: Any, response: Response) -> Step:
        self.height += int(response.output_text)
        return Step(f"You are at {self.height}.", reward=1.0, terminated=self.height >= self.top)


class Asked:
    """Counts the calls of a scripted model by rollout, and stops answering from a turn on."""

    def __init__(self, answer: Any, stop_at: int | None = None) -> None:
        self.turns: defaultdict[str, list[int]] = defaultdict(list)
        self.stuck = 0
        self.stops: Callable[[Request], bool] = lambda request: stop_at is not None and request.turn >= stop_at
        self._answer = answer

    async def respond(self, request: Request) -> Any:
        self.turns[str(request.session)].append(request.turn)
        if self.stops(request):
            self.stuck += 1
            await asyncio.Event().wait()
        return self._answer(request)

    @property
    def model(self) -> ScriptedModel:
        return ScriptedModel(self.respond, name="m")


def adds(request: Request) -> Any:
    """Add numbers, two at once in turn 2, then say done."""
    turn = request.turn
    if turn == 2:
        return {"calls": [{"name": "add", "arguments": {"number": n}} for n in (turn, request.seed % 7)]}
    return {"call": "add", "arguments": {"number": turn}} if turn < TURNS else f"done {request.seed}"


def rows(count: int) -> list[dict[str, Any]]:
    return [{"responses_create_params": {"input": f"row {number}"}} for number in range(count)]


async def interrupt(environment: Any, asked: Asked, output: Path, stuck: int, **options: Any) -> Collection:
    """Run a collection until so many rollouts wait for the model, then cancel it as Ctrl-C would."""
    collection = Collection(environment, Options(model=asked.model, output=output, **options))
    running = asyncio.create_task(collection.run(collection.prepare()))
    await until_async(lambda: asked.stuck >= stuck or running.done())
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return collection


async def complete(environment: Any, asked: Asked, output: Path, **options: Any) -> Collection:
    collection = Collection(environment, Options(model=asked.model, output=output, **options))
    await collection.run(collection.prepare())
    return collection


def records(output: Path) -> dict[str, dict[str, Any]]:
    """The recorded rollouts by id, without times and receipts."""
    found = [orjson.loads(line) for line in (output / "rollouts.jsonl").read_bytes().splitlines()]
    assert len({row["rollout_id"] for row in found}) == len(found)
    return {row["rollout_id"]: {k: v for k, v in row.items() if k not in ("timings", "receipt")} for row in found}
