"""The calls of programs are kept, and given back only to a program that asks the same again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import orjson
import pytest
from kills import PROGRAM, TRAJECTORY, TURNS, Killed

import ludus
from ludus import ScriptedModel
from ludus.collection.checkpoints import TurnKeeper
from ludus.collection.progress import Progress
from ludus.collection.saved_calls import SavedCalls
from ludus.response import Item, Response, message
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


def kept(*answers: tuple[str, str], alike: str | None = None, asked: list[Item] | None = None) -> bytes:
    """The lines of a rollout whose program got these answers, by key."""

    async def keep() -> Lines:
        writer = Lines()
        keeper = TurnKeeper(writer)
        saved = SavedCalls(keeper, job(), Progress())
        for key, text in answers:
            saved.keep(key, Response.of(message(text)), {"items": 1}, alike or key, asked)
        keeper.write()
        return writer

    return b"".join(line + b"\n" for line in asyncio.run(keep()).lines)


def resumed(turns: bytes) -> tuple[SavedCalls, Progress]:
    progress: Any = Progress()
    return SavedCalls(TurnKeeper(Lines()), job(turns), progress), progress


def test_a_request_that_was_made_twice_gets_its_answers_in_order_and_then_none() -> None:
    saved, progress = resumed(kept(("x", "first"), ("y", "other"), ("x", "second")))
    texts = [Response(call.answer).output_text for _ in range(2) if (call := saved.known("x", "x")) is not None]
    assert texts == ["first", "second"]
    assert saved.known("x", "x") is None
    saved.end()
    assert (progress.resumed, progress.turns_kept, progress.started_over) == (1, 2, 0)
    assert progress.turns_lost == 1, "the program never asked y"


def test_a_request_with_other_volatile_text_gets_the_answer_and_what_the_model_read() -> None:
    asked = [message("at 10:01")]
    saved, progress = resumed(kept(("x", "first"), ("y", "second"), alike="like", asked=asked))
    exact = saved.known("y", "like")
    assert exact is not None
    assert (Response(exact.answer).output_text, exact.asked) == ("second", None)
    assert saved.has_answers
    alike = saved.known("z", "like")
    assert alike is not None
    assert (Response(alike.answer).output_text, alike.asked) == ("first", asked)
    assert saved.known("z", "like") is None
    assert not saved.has_answers
    assert saved.counts() == {"kept_calls": 2, "alike_calls": 1, "lost_calls": 0}
    saved.end()
    assert (progress.turns_kept, progress.turns_alike, progress.turns_lost) == (2, 1, 0)


def test_a_program_that_never_asks_the_same_starts_over_and_is_counted() -> None:
    saved, progress = resumed(kept(("x", "first")))
    assert saved.known("another", "another") is None
    saved.end()
    assert (progress.resumed, progress.started_over, progress.turns_lost) == (0, 1, 1)
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


#: A program that tells the model the time, and runs a tool whose output it frames with a random id.
CLOCK_PROGRAM = PROGRAM.replace(
    'items = asked["input"]',
    "import datetime, secrets\n"
    'items = asked["input"] + [{"role": "user", "content": f"It is {datetime.datetime.now()}."}]',
).replace('"output": text', '"output": f"run {secrets.token_hex(4)}: {text}" if RANDOM else text')


@pytest.mark.parametrize("is_random", [False, True])
def test_a_killed_program_that_tells_the_time_goes_on_and_one_with_random_ids_loses_turns(
    tmp_path: Path, is_random: bool
) -> None:
    killed = Killed(tmp_path / "sums", 1, by_program=True)
    (killed.folder / "program.py").write_text(CLOCK_PROGRAM.replace("RANDOM", str(is_random)))
    assert killed.kill_after(6)
    killed.finish("--resume")
    (row,) = killed.records().values()
    checkpoints = orjson.loads((killed.folder / "out/metrics.json").read_bytes())["checkpoints"]
    assert (checkpoints["resumed"], checkpoints["turns_alike"], checkpoints["started_over"]) == (1, 1, 0)
    notes = row["response"]["metadata"]
    assert (notes["alike_calls"], int(notes["kept_calls"])) == ("1", checkpoints["turns_kept"])
    assert int(notes.get("lost_calls", 0)) == checkpoints["turns_lost"]
    if is_random:
        assert checkpoints["turns_kept"] == 1, "the first request differs in the time, the second in the id"
        assert checkpoints["turns_lost"] > 0
    else:
        assert checkpoints["turns_lost"] == 0
        assert len(killed.asked) <= TURNS + 2, "the call in flight, and an answer that was not written yet"
    assert len(row["model_calls"]) == TURNS
    assert [item.get("type") for item in row["response"]["output"]] == [None, *TRAJECTORY]
