"""The calls of programs are kept, and given back only to a program that asks the same again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from kills import Killed

import ludus
from ludus import ScriptedModel
from ludus.collection.checkpoints import TurnKeeper
from ludus.collection.progress import Progress
from ludus.collection.saved_calls import SavedCalls
from ludus.response import Response, message
from ludus.rollout import Job
from ludus.task import Task


class Lines:
    """Takes lines, and has no delay."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, job: Job, line: bytes, turns: int) -> int:
        self.lines.append(line)
        return len(self.lines)

    def flush(self) -> None: ...

    def settle(self, number: int) -> None: ...


def job(turns: bytes = b"") -> Job:
    return Job("a-0", "a", 0, Task.unchecked({}), {}, turns=turns)


def kept(*answers: tuple[str, str]) -> bytes:
    """The lines of a rollout whose program got these answers, by key."""

    async def keep() -> Lines:
        writer = Lines()
        keeper = TurnKeeper(writer)
        saved = SavedCalls(keeper, job(), Progress())
        for key, text in answers:
            saved.keep(key, Response.of(message(text)), {"items": 1})
        keeper.write()
        return writer

    return b"".join(line + b"\n" for line in asyncio.run(keep()).lines)


def resumed(turns: bytes) -> tuple[SavedCalls, Progress]:
    progress: Any = Progress()
    return SavedCalls(TurnKeeper(Lines()), job(turns), progress), progress


def test_a_request_that_was_made_twice_gets_its_answers_in_order_and_then_none() -> None:
    saved, progress = resumed(kept(("x", "first"), ("y", "other"), ("x", "second")))
    texts = [Response(call.answer).output_text for _ in range(2) if (call := saved.known("x")) is not None]
    assert texts == ["first", "second"]
    assert saved.known("x") is None
    saved.end()
    assert (progress.resumed, progress.turns_kept, progress.started_over) == (1, 2, 0)


def test_a_program_that_never_asks_the_same_starts_over_and_is_counted() -> None:
    saved, progress = resumed(kept(("x", "first")))
    assert saved.known("with another clock") is None
    saved.end()
    assert (progress.resumed, progress.started_over) == (0, 1)
    assert "a-0 started over" in progress.notices[0]


def test_a_program_gets_no_answer_before_its_earlier_calls_are_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In workers, another process writes them: without the wait, a killed collection would lose several calls."""
    waits = 0

    def settle(saved: SavedCalls) -> Awaitable[None]:
        async def safe() -> None:
            nonlocal waits
            waits += 1

        return safe()

    monkeypatch.setattr(SavedCalls, "settle", settle)
    folder = Killed(tmp_path / "sums", 1, by_program=True).folder
    model = ScriptedModel([{"call": "add", "arguments": {"number": 1}}, "done"])
    result = ludus.collect(str(folder), model=model, input=folder / "rows.jsonl", output=tmp_path / "out")
    assert result.metrics["counts"]["completed"] == 1
    assert waits == 2
