"""Misbehaving environment code: what it does to its task, threads and exceptions affects only its own rollout."""

from __future__ import annotations

import asyncio
import copy
import decimal
import functools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import CEILING

import ludus
from ludus import Resources, ScriptedModel, episode
from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.runtime.threads import call_after


class Plain(Resources):
    """Gives every answer the reward 1."""

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


async def played(
    resources: Any, *, repeats: int = 1, settings: Any = None, script: Any = ("done",), **fields: Any
) -> Any:
    row = {"responses_create_params": {"input": "hello"}, **fields}
    stream = ludus.stream(
        resources, model=ScriptedModel([*script]), input=[row], repeats=repeats, settings=settings, concurrency=1
    )
    return [rollout async for rollout in stream]


@pytest.mark.parametrize("declared", [True, False])
async def test_changes_to_a_task_reach_no_other_session_and_no_record(tmp_path, declared):
    class Eats(Resources):
        async def open(self, task: Any) -> None:
            self.todo = task.todo

        @ludus.tool
        async def eat(self) -> int:
            """Take the last number."""
            return self.todo.pop()

        async def verify(self, task: Any, response: Any) -> float:
            task.responses_create_params["input"] = "nothing"
            return float(len(self.todo) == 2)

    if declared:

        class DeclaredTask(ludus.Task):
            todo: list[int]

        Eats.Task = DeclaredTask
    row = {"responses_create_params": {"input": "hello"}, "todo": [1, 2, 3]}
    given = copy.deepcopy(row)
    script = [{"call": "eat", "arguments": {}}, "done"]
    for folder in ("one", "two"):  # the first collection must not change the second one's rows
        await ludus.collect_async(Eats, model=ScriptedModel(script), input=[row], repeats=3, output=tmp_path / folder)
        stored = [json.loads(line) for line in (tmp_path / folder / "rollouts.jsonl").read_text().splitlines()]
        assert [each["reward"] for each in stored] == [1.0] * 3
        assert [{key: each[key] for key in given} for each in stored] == [given] * 3
    assert row == given


async def test_verify_group_gets_a_task_that_no_session_changed():
    class Together(Resources):
        async def open(self, task: Any) -> None:
            task.todo.clear()

        async def verify_group(self, task: Any, responses: list[Any]) -> list[float]:
            return [float(task.todo == [1])] * len(responses)

    assert [rollout.reward for rollout in await played(Together, repeats=2, todo=[1])] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("close_seconds", "expected"), [(CEILING, ["taken", "closed"]), (0.2, ["closed", "taken", "closed"])]
)
async def test_a_plain_open_that_ends_after_its_timeout_is_followed_by_close(monkeypatch, close_seconds, expected):
    log, closed, loop = list[str](), asyncio.Queue[None](), asyncio.get_running_loop()
    go_on = threading.Event()

    class Slow(Plain):
        def open(self, task: Any) -> None:
            go_on.wait(CEILING)
            log.append("taken")

        def close(self) -> None:
            log.append("closed")
            go_on.set()
            loop.call_soon_threadsafe(closed.put_nowait, None)

    def closing(*args: Any) -> Any:
        """The time to open is up; the session takes what it wanted before it is closed, or only after."""
        if expected[0] == "taken":
            go_on.set()
        return call_after(*args)

    monkeypatch.setattr(episode, "call_after", closing)
    (rollout,) = await played(Slow, settings={"limits.open": 0.1, "limits.close": close_seconds})
    assert (rollout.error.stage, rollout.error.kind) == ("open", "timeout")
    for _ in range(expected.count("closed")):
        await asyncio.wait_for(closed.get(), CEILING)
    assert log == expected


async def test_a_session_whose_plain_open_hangs_is_closed_completely():
    log = list[str]()

    class Hung(Plain):
        def open(self, task: Any) -> None:
            time.sleep(1000)

        async def close(self) -> None:
            log.append("close begins")
            await asyncio.sleep(0)
            log.append("close ends")

    (rollout,) = await played(Hung, settings={"limits.open": 0.1, "limits.close": 2.0})
    assert (rollout.error.stage, rollout.error.kind) == ("open", "timeout")
    assert log == ["close begins", "close ends"]


class Stubborn(Plain):
    """Swallows cancels."""

    swallowed = 0
    seconds = 30.0  #: how long it goes on each time

    @classmethod
    async def swallow(cls, times: int) -> None:
        for _ in range(times):
            try:
                await asyncio.sleep(cls.seconds)
            except asyncio.CancelledError:
                cls.swallowed += 1


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_tool_that_swallows_its_cancel_is_cancelled_again(calls):
    class Polls(Stubborn):
        @ludus.tool
        async def poll(self) -> str:
            """Poll."""
            await self.swallow(2)
            return "polled"

    script = [{"calls": [{"name": "poll", "arguments": {}}] * calls}, "done"]
    (rollout,) = await played(Polls, script=script, settings={"limits.tool": 0.05})
    assert (rollout.error.stage, rollout.error.kind) == ("tool", "timeout")
    assert Polls.swallowed == 2 * calls


async def test_a_close_that_swallows_two_cancels_is_a_timeout():
    class Closes(Stubborn):
        async def close(self) -> None:
            await self.swallow(2)

    (rollout,) = await played(Closes, settings={"limits.close": 0.05})
    assert (rollout.error.stage, rollout.error.kind) == ("close", "timeout")


async def test_a_cancelled_run_starts_no_rollout_even_if_open_swallows_the_cancel():
    opened = list[int]()

    class Opens(Stubborn):
        seconds = 1.0

        async def open(self, task: Any) -> None:
            opened.append(task.n)
            await self.swallow(2)

    rows = [{"responses_create_params": {"input": "hello"}, "n": n} for n in range(4)]
    collection = Collection(Opens, Options(model=ScriptedModel(["done"]), input=rows, concurrency=1))
    running = asyncio.create_task(collection.run(collection.prepare(sink=collection.add_rollout)))
    while not opened:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert opened == [0]


async def test_the_record_of_a_failure_holds_the_request_of_the_row_unchanged():
    class Changes(Plain):
        async def open(self, task: Any) -> None:
            task.responses_create_params["input"] = "the answer"
            task.responses_create_params["self"] = task.responses_create_params

        async def verify(self, task: Any, response: Any) -> float:
            raise ValueError("no")

    (rollout,) = await played(Changes)
    assert json.loads(rollout.encode())["responses_create_params"] == {"input": "hello"}


class Panic(BaseException):
    """Not an `Exception`, like a panic in an extension module that is written in Rust."""


@pytest.mark.parametrize("where", ["open", "verify", "close"])
async def test_a_base_exception_is_a_crash_of_its_stage(where):
    class Panics(Resources):
        async def open(self, task: Any) -> None:
            self.reach("open")

        async def verify(self, task: Any, response: Any) -> float:
            self.reach("verify")
            return 1.0

        async def close(self) -> None:
            self.reach("close")

        def reach(self, step: str) -> None:
            if step == where:
                raise Panic("unwrap on None")

    (rollout,) = await played(Panics)
    assert (rollout.error.stage, rollout.error.kind, rollout.error.cause) == (where, "crash", "Panic: unwrap on None")


async def answer() -> float:
    return 1.0


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (object, "look returned object: return JSON"),
        (lambda: {"rows": [1, {"cell": object()}]}, "look returned object: return JSON"),
        (lambda: {"rows": (2**70, threading.Lock())}, "look returned lock: return JSON"),
        (lambda: [lambda: 1], "look returned function: return JSON"),
        (lambda: {"later": answer()}, "look returned a coroutine: await it"),
        (lambda: (each for each in "abc"), "look returned generator: return JSON"),
    ],
)
async def test_a_tool_that_returns_no_json_tells_its_author_and_shows_the_model_no_address(returned, says):
    class Odd(Plain):
        @ludus.tool
        async def look(self) -> Any:
            """Look."""
            return returned()

    (rollout,) = await played(Odd, script=[{"calls": [{"name": "look", "arguments": {}}]}, "done"])
    (output,) = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
    assert json.loads(output) == {"error": says}
    (error,) = rollout.tool_errors
    assert error["exception"] == "TypeError"
    assert error["where"].startswith("test_foreign_code.py:")


@pytest.mark.parametrize("returned", [decimal.Decimal("1.5"), Path("a"), {1}, float("nan"), ValueError("no"), b"x"])
async def test_a_tool_may_return_whatever_has_a_text_of_its_own(returned):
    class Fine(Plain):
        @ludus.tool
        async def look(self) -> Any:
            """Look."""
            return {"a": returned}

    (rollout,) = await played(Fine, script=[{"calls": [{"name": "look", "arguments": {}}]}, "done"])
    assert not rollout.tool_errors


async def test_a_verdict_that_is_a_coroutine_and_a_second_event_loop_say_what_to_write():
    class Forgets(Plain):
        async def verify(self, task: Any, response: Any) -> Any:
            return answer()

    class Runs(Plain):
        async def verify(self, task: Any, response: Any) -> float:
            later = answer()
            try:
                return asyncio.run(later)
            finally:
                later.close()

    (rollout,) = await played(Forgets)
    cause = "the verdict is a coroutine: write `await` before the call that gives the reward"
    assert (rollout.error.kind, rollout.error.cause) == ("bad_verdict", cause)
    (rollout,) = await played(Runs)
    assert rollout.error.kind == "crash"
    assert "Write `await` in an `async def` method instead, or make the method a plain `def`" in rollout.error.cause


async def test_the_model_reads_the_error_of_a_tool_that_panics_or_returns_a_cycle():
    class Odd(Plain):
        @ludus.tool
        async def panic(self) -> int:
            """Panic."""
            raise Panic("oh")

        @ludus.tool
        async def circle(self) -> list[Any]:
            """Go round."""
            found: list[Any] = []
            found.append(found)
            return found

    calls = [{"name": name, "arguments": {}} for name in ("panic", "circle")]
    (rollout,) = await played(Odd, script=[{"calls": calls}, "done"])
    outputs = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
    assert outputs[0] == '{"error":"Panic: oh"}'
    assert "RecursionError" in outputs[1]


@pytest.mark.parametrize("step", ["open", "verify"])
async def test_a_method_that_calls_another_with_the_wrong_parameters_is_a_crash_of_its_stage(step):
    async def wrong(self: Any) -> float:
        return 1.0

    async def passes_all(*args: Any) -> float:
        return await wrong(*args)

    (rollout,) = await played(type("Wrong", (Plain,), {step: passes_all}))
    assert (rollout.error.stage, rollout.error.kind) == (step, "crash")
    assert "TypeError" in rollout.error.cause


async def test_an_async_method_behind_an_ordinary_decorator_is_awaited():
    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    class Decorated(Resources):
        @logged
        async def open(self, task: Any) -> None:
            self.opened = True

        @ludus.tool
        @logged
        async def look(self, at: str) -> str:
            """Look at something."""
            return f"seen {at}"

        @logged
        async def verify(self, task: Any, response: Any) -> float:
            return float(self.opened and response.output[1]["output"] == "seen it")

    (rollout,) = await played(Decorated, script=[{"call": "look", "arguments": {"at": "it"}}, "done"])
    assert rollout.reward == 1.0


async def test_a_failure_names_the_authors_line_and_not_the_librarys():
    class Reads(Plain):
        async def verify(self, task: Any, response: Any) -> float:
            return float(json.loads("no JSON"))

    (rollout,) = await played(Reads)
    assert rollout.error.where.startswith("test_foreign_code.py:")
    assert rollout.error.where.endswith(" in verify")
