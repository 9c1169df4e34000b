"""Replays the answers of a recorded collection, to test a verifier or an agent without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.errors import Failure, UserError
from ludus.model import Model, Request
from ludus.response import Item, Response
from ludus.runtime.regular_files import open_regular
from ludus.store.model_calls import call_starts
from ludus.store.parsing import parse
from ludus.store.stored_run import StoredRun
from ludus.tokens import Tokens


class ReplayModel(Model):
    """`replay:FILE` or `replay:FOLDER`. The answer comes from the recorded rollout with the same id, at the same turn.

    Memory holds the file offset of each rollout, and the rollouts that are being replayed.
    """

    def __init__(self, path: Path) -> None:
        self._run = StoredRun(path, "Name a collection's folder or its rollouts")
        self.path = self._run.files.rollouts
        self.name = f"replay:{path}"
        self.config = self.Config()
        self._offsets: dict[str, int] = {}
        with self._run.lines() as lines:
            for number, line in lines.counted():
                try:
                    self._offsets[parse(line)["rollout_id"]] = lines.offset
                except (Failure, KeyError, TypeError) as error:
                    raise UserError(f"{self.path}:{number}: not a recorded rollout", self._run.hint) from error
        self._open: dict[str, dict[str, Any]] = {}

    async def respond(self, request: Request) -> Response:
        """Return the recorded answer of this turn."""
        session = request.session or ""
        row = self._open.get(session)
        if row is None:
            row = self._open[session] = self._read(session)
        calls = row.get("model_calls") or []
        if request.turn >= len(calls):
            raise Failure("no_recording", f"{self.name} has only {len(calls)} answers for rollout {session}")
        items = answers(row)[request.turn]
        response = row["response"]
        fields = {key: value for key, value in response.items() if key not in ("output", "usage")}
        if request.turn < len(calls) - 1:
            fields |= {"status": "completed", "incomplete_details": None}
        return Response({**fields, "output": items}, _tokens(calls, request.turn))

    def forget(self, session: str) -> None:
        """Forget a finished rollout."""
        self._open.pop(session, None)

    def _read(self, rollout_id: str) -> dict[str, Any]:
        offset = self._offsets.get(rollout_id)
        if offset is None:
            raise Failure("no_recording", f"{self.name} has no rollout {rollout_id}")
        with open_regular(self.path) as file:
            file.seek(offset)
            return parse(file.readline())


def answers(row: dict[str, Any]) -> list[list[Item]]:
    """The items that the model wrote in each of its calls, without the tool outputs and user messages between them."""
    output, calls = row["response"]["output"], row.get("model_calls") or []
    starts = call_starts(output, calls)
    return [output[start : start + call["items"]] for start, call in zip(starts, calls, strict=True)]


def _tokens(calls: list[dict[str, Any]], turn: int) -> Tokens | None:
    ids: list[int] = []
    for number, call in enumerate(calls[: turn + 1]):
        if "prefix" not in call:
            continue
        prompt = ids[: call["prefix"]] + call["prompt_ids"]
        if number == turn:
            return Tokens(prompt, call["generated_ids"], call["logprobs"], call["policy_version"], call.get("sampling"))
        ids = prompt + call["generated_ids"]
    return None
