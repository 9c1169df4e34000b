"""An environment whose rewards the model's words decide, and runs of it with known figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ludus
from ludus import Request, Resources, Response, ScriptedModel, Verdict, tool
from ludus.response import function_call, message


class Words(Resources):
    """The answer is `REWARD`, or a word that fails or masks the rollout."""

    @tool
    def look(self, word: str) -> str:
        """Look a word up."""
        if word == "broken":
            raise ValueError("no such word")
        return word

    def verify(self, task: Any, response: Response) -> Verdict:
        """The reward that the answer names."""
        said = response.output_text
        if "crash" in said:
            raise ValueError("boom")
        reward = float(said.split()[0])
        components = {"form": reward / 2, "fact": 1 - reward}
        return Verdict(reward, components=components, mask="odd" if "odd" in said else None)


class Others(Words):
    """Another environment."""


def rows(*names: str) -> list[dict[str, Any]]:
    return [{"task_id": name, "responses_create_params": {"input": name}} for name in names]


def answers(*turns: str) -> Callable[[Request], Response]:
    """A model that answers the repeats of a task in order. An answer may end with the number of its tokens."""
    given: dict[str, int] = {}

    def respond(request: Request) -> Response:
        if request.turn == 0 and "call" in turns:
            calls = [function_call("look", {"word": word}, call_id=word) for word in ("fine", "broken")]
            return Response.of(*calls, function_call("nothing", {}, call_id="none"), model="m-1")
        task = str(request.session).rpartition("-")[0]
        spoken = [turn for turn in turns if turn != "call"]
        said = spoken[given.get(task, 0) % len(spoken)]
        given[task] = given.get(task, 0) + 1
        tokens = int(said.split()[-1]) if len(said.split()) > 1 and said.split()[-1].isdigit() else 0
        usage = {"input_tokens": 100, "output_tokens": tokens, "input_tokens_details": {"cached_tokens": 40}}
        return Response.of(message(said), model="m-1", **({"usage": usage} if tokens else {}))

    return respond


def collect(output: Path, *turns: str, tasks: tuple[str, ...] = ("t",), kind: Any = Words, **options: Any) -> Path:
    """Collect one rollout of each task for each turn, one after another."""
    repeats = len([turn for turn in turns if turn != "call"])
    options = {"repeats": repeats, "max_attempts": 1, "concurrency": 1, **options}
    ludus.collect(kind, model=ScriptedModel(answers(*turns)), input=rows(*tasks), output=output, **options)
    return output


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "ludus", *map(str, arguments)]
