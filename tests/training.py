"""An environment and a policy whose rewards, tokens and failures a test chooses, for tests of training."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import ludus
from ludus import Resources, Response
from ludus.errors import Failure
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.outcome import Verdict
from ludus.response import message
from ludus.tokens import Tokens


class Judged(Resources):
    """The reward is the number in the answer. `mask 0.5` masks it, `crash` fails."""

    async def verify(self, task: ludus.Task, response: Response) -> Verdict:
        words = response.output_text.split()
        if words[0] == "crash":
            raise RuntimeError("the judge is dead")
        return Verdict(float(words[-1]), mask="unfit" if words[0] == "mask" else None, components={"all": 1.0})


def answer(text: str, *, prompt: list[int] | None = None, version: str | None = None) -> Response:
    """An answer with tokens: the prompt ids 1, 2 and an id for each character of the text."""
    ids = [100 + ord(letter) % 50 for letter in text]
    tokens = Tokens(prompt or [1, 2], ids, [-0.5] * len(ids), version, {"temperature": 1.0})
    return Response.of(message(text), model="scripted", tokens=tokens)


def policy(answers: Callable[[str, int], str | Awaitable[str]]) -> ScriptedModel:
    """A policy that answers with a text for a question and the number of the repeat."""

    async def respond(request: Request) -> Response:
        question, repeat = str(request.input[0]["content"]), int(str(request.session).rpartition("-")[2])
        text = answers(question, repeat)
        if not isinstance(text, str):
            text = await text
        if text == "refuse":
            raise Failure("http_500", "the policy is down")
        return answer(text)

    return ScriptedModel(respond)


def questions(count: int) -> list[dict[str, Any]]:
    """Rows with the questions q0, q1 and so on."""
    return [{"responses_create_params": {"input": f"q{n}"}, "task_id": f"t{n}"} for n in range(count)]


class Gate:
    """Answers wait here until a test lets them go."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self._open = asyncio.Event()

    async def hold(self, name: str, text: str) -> str:
        self.waiting.append(name)
        await self._open.wait()
        return text

    def open(self) -> None:
        self._open.set()
