"""Code of others, as it comes: whatever it does to its task, its threads or its exceptions stays in its own rollout."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import time
from typing import Any

import pytest

import ludus
from ludus import Resources, ScriptedModel


class Plain(Resources):
    """Is content with anything."""

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
async def test_what_a_session_does_to_its_task_reaches_no_other_session_and_no_record(tmp_path, declared):
    class Eats(Resources):
        async def open(self, task: Any) -> None:
            self.todo = task.todo

        @ludus.tool
        async def eat(self) -> int:
            """Take the last one."""
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
    for folder in ("one", "two"):  # the rows are still the same for the next collection
        ludus.collect(Eats, model=ScriptedModel(script), input=[row], repeats=3, output=tmp_path / folder)
        stored = [json.loads(line) for line in (tmp_path / folder / "rollouts.jsonl").read_text().splitlines()]
        assert [each["reward"] for each in stored] == [1.0] * 3
        assert [{key: each[key] for key in given} for each in stored] == [given] * 3
    assert row == given


async def test_a_group_is_judged_on_a_task_that_no_session_has_had():
    class Together(Resources):
        async def open(self, task: Any) -> None:
            task.todo.clear()

        async def verify_group(self, task: Any, responses: list[Any]) -> list[float]:
            return [float(task.todo == [1])] * len(responses)

    assert [rollout.reward for rollout in await played(Together, repeats=2, todo=[1])] == [1.0, 1.0]


@pytest.mark.parametrize("close_seconds", [5.0, 0.2])
async def test_what_a_plain_open_takes_is_closed_after_it_was_taken_however_late(close_seconds):
    log, closed, loop = list[str](), asyncio.Event(), asyncio.get_running_loop()

    class Slow(Resources):
        def open(self, task: Any) -> None:
            time.sleep(0.6)
            log.append("taken")

        def close(self) -> None:
            log.append("closed")
            loop.call_soon_threadsafe(closed.set)

        async def verify(self, task: Any, response: Any) -> float:
            return 1.0

    (rollout,) = await played(Slow, settings={"limits.open": 0.1, "limits.close": close_seconds})
    assert (rollout.error.stage, rollout.error.kind) == ("open", "timeout")
    await asyncio.wait_for(closed.wait(), 30)
    assert log == ["taken", "closed"]


class Panic(BaseException):
    """As an extension raises it that was not written in Python."""


@pytest.mark.parametrize("where", ["open", "verify", "close"])
async def test_a_panic_ends_its_own_rollout(where):
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


async def test_a_tool_that_panics_or_returns_what_cannot_be_written_is_told_to_the_model():
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
async def test_a_step_with_the_wrong_parameters_fails_as_that_step(step):
    async def wrong(self: Any) -> float:
        return 1.0

    (rollout,) = await played(type("Wrong", (Plain,), {step: wrong}))
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


async def test_a_failure_names_the_line_of_the_author_and_not_of_a_library():
    class Reads(Plain):
        async def verify(self, task: Any, response: Any) -> float:
            return float(json.loads("no JSON"))

    (rollout,) = await played(Reads)
    assert rollout.error.where.startswith("test_foreign_code.py:")
    assert rollout.error.where.endswith(" in verify")
