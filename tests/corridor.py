"""A walk through a corridor of doors, for tests of credit: one wrong door loses the prize, and no output shows it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ludus
from ludus import Request, Resources, Response, tool
from ludus.models.scripted import ScriptedModel
from ludus.response import function_call, message
from ludus.tokens import Tokens

DOORS = 6
#: How often the policy takes a wrong door by itself.
SLIPS = 0.04


class Corridor(Resources):
    """Take the door that the sign names, six times."""

    verifier = "corridor"  # a fixed digest: the seeds of continuations do not depend on the source of this file

    class Task(ludus.Task):
        signs: list[str]

    async def open(self, task: Task) -> None:
        self.signs, self.lost = [*task.signs], False

    @tool
    async def enter(self, door: str) -> str:
        """Go through a door."""
        self.lost |= door != self.signs.pop(0)
        return f"sign: {self.signs[0]}" if self.signs else "the end"

    @tool
    async def wait(self) -> str:
        """Do nothing, which looks odd and costs nothing."""
        return f"sign: {self.signs[0]}" if self.signs else "the end"

    async def verify(self, task: Task, response: Response) -> float:
        return float(not self.lost and not self.signs)


def walks(count: int) -> list[dict[str, Any]]:
    """Rows of the corridor, each with signs of its own."""
    return [_walk(number) for number in range(count)]


def _walk(number: int) -> dict[str, Any]:
    generator = random.Random(number)
    signs = [generator.choice(["left", "right"]) for _ in range(DOORS)]
    return {"responses_create_params": {"input": f"walk {number} sign: {signs[0]}"}, "signs": signs}


def planted(number: int) -> tuple[int, int]:
    """The turn at which a recorded walk takes the wrong door, and an earlier or later turn at which it waits."""
    generator = random.Random(f"plant {number}")
    mistake, wait = generator.sample(range(DOORS), 2)
    return mistake, wait


def careful(request: Request) -> Any:
    """A policy that follows the signs, and slips now and then, by its seed."""
    sign = _sign(request)
    if sign is None:
        return "Done."
    slips = random.Random(f"{request.seed} {request.turn}").random() < SLIPS
    return _enter(_other(sign) if slips else sign)


def mistaken(request: Request) -> Any:
    """A policy with a planted mistake, that follows the signs everywhere else."""
    mistake, wait = planted(int(str(request.input[0]["content"]).split()[1]))
    sign = _sign(request)
    if sign is None:
        return "Done."
    if request.turn == wait:
        return {"call": "wait", "arguments": {}}
    return _enter(_other(sign) if request.turn == mistake else sign)


def with_tokens(policy: Callable[[Request], Any]) -> ScriptedModel:
    """The same policy with tokens and usage: each answer is one token, after a prompt that grows by ten."""

    def respond(request: Request) -> Response:
        turn, prompt = policy(request), list(range(10 * request.turn + 1))
        called = isinstance(turn, dict)
        item = function_call(turn["call"], turn["arguments"], call_id=f"c{request.turn}") if called else message(turn)
        usage = {"input_tokens": len(prompt), "output_tokens": 1}
        return Response.of(item, model="walker", tokens=Tokens(prompt, [100], [-0.5]), usage=usage)

    return ScriptedModel(respond, name="walker")


def recorded_walks(folder: Path, count: int, policy: Callable[[Request], Any] = mistaken, **options: Any) -> Path:
    """Collect walks into a folder, with tokens."""
    given = {"input": walks(count), "output": folder, "tokens": True, **options}
    found = ludus.collect(Corridor, model=with_tokens(policy), **given)
    assert found.metrics["counts"]["failed"] == 0
    return folder


def _sign(request: Request) -> str | None:
    """The door that the last output, or the prompt, names."""
    last = request.input[-1]
    words = str(last["output"] if "output" in last else last["content"]).split()
    return words[-1] if words[-2] == "sign:" else None


def _enter(door: str) -> dict[str, Any]:
    return {"call": "enter", "arguments": {"door": door}}


def _other(door: str) -> str:
    return "left" if door == "right" else "right"
