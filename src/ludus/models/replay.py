"""The answers of a recorded collection, given again item for item: to try a verifier or an agent without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from ludus.errors import Failure, UserError
from ludus.model import Model, Request
from ludus.response import Item, Response
from ludus.tokens import Tokens


class ReplayModel(Model):
    """`replay:FILE` or `replay:FOLDER`. A request is answered by the rollout of the same id, at the same turn.

    Only where each rollout stands in the file is kept in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path / "rollouts.jsonl" if path.is_dir() else path
        self.name = f"replay:{path}"
        self.config = self.Config()
        self._offsets: dict[str, int] = {}
        try:
            self._index()
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise UserError(
                f"cannot read {self.path}: {error}", "Name a collection's folder or its rollouts"
            ) from error
        self._open: dict[str, dict[str, Any]] = {}

    async def respond(self, request: Request) -> Response:
        """The recorded answer at this turn."""
        session = request.session or ""
        row = self._open.get(session)
        if row is None:
            row = self._open[session] = self._read(session)
        calls = row.get("model_calls") or []
        if request.turn >= len(calls):
            raise Failure("no_recording", f"{self.name} has {len(calls)} answers for {session}, not {request.turn + 1}")
        items = answers(row)[request.turn]
        response = row["response"]
        fields = {key: value for key, value in response.items() if key not in ("output", "usage")}
        if request.turn < len(calls) - 1:
            fields |= {"status": "completed", "incomplete_details": None}
        return Response({**fields, "output": items}, _tokens(calls, request.turn))

    def forget(self, session: str) -> None:
        """A rollout is over."""
        self._open.pop(session, None)

    def _index(self) -> None:
        with self.path.open("rb") as file:
            offset = 0
            for line in file:
                self._offsets[orjson.loads(line)["rollout_id"]] = offset
                offset += len(line)

    def _read(self, rollout_id: str) -> dict[str, Any]:
        offset = self._offsets.get(rollout_id)
        if offset is None:
            raise Failure("no_recording", f"{self.name} has no rollout {rollout_id}")
        with self.path.open("rb") as file:
            file.seek(offset)
            row: dict[str, Any] = orjson.loads(file.readline())
            return row


def answers(row: dict[str, Any]) -> list[list[Item]]:
    """What the model wrote in each of its calls, without what tools and users said between them."""
    rest: list[Item] = list(row["response"]["output"])
    found: list[list[Item]] = []
    for call in row.get("model_calls") or []:
        while rest and _not_the_models(rest[0]):
            rest.pop(0)
        found.append(rest[: call["items"]])
        del rest[: call["items"]]
    return found


def _not_the_models(item: Item) -> bool:
    kind = str(item.get("type") or "message")
    return kind.endswith("_output") or (kind == "message" and item.get("role", "assistant") != "assistant")


def _tokens(calls: list[dict[str, Any]], turn: int) -> Tokens | None:
    ids: list[int] = []
    for number, call in enumerate(calls[: turn + 1]):
        if "prefix" not in call:
            continue
        prompt = ids[: call["prefix"]] + call["prompt_ids"]
        if number == turn:
            return Tokens(prompt, call["generated_ids"], call["logprobs"], call["policy_version"])
        ids = prompt + call["generated_ids"]
    return None
