"""Environment code that calls `exit()` or awaits a cancelled task fails its own rollout and no other."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

import ludus
from ludus import Agent, Resources, ScriptedModel, tool
from ludus.environment import Environment

STAGES = ["open", "verify", "close"]


async def call_exit() -> None:
    sys.exit(0)


async def wait_for_a_cancelled_task() -> None:
    task = asyncio.create_task(asyncio.sleep(30))
    task.cancel()
    await task


def interrupt() -> None:
    raise KeyboardInterrupt


WAYS = {"exit": call_exit, "cancelled": wait_for_a_cancelled_task}
SAYS = {"exit": "SystemExit: 0", "cancelled": "CancelledError: something that it waited for was cancelled"}


def only_odd(stage: str, way: str) -> type[Resources]:
    """Resources that exit or await a cancelled task in one stage of every odd row."""

    class Odd(Resources):
        async def step(self, name: str) -> None:
            if name == stage and self.odd:
                await WAYS[way]()

        async def open(self, task: Any) -> None:
            self.odd = task.number % 2
            await self.step("open")

        async def verify(self, task: Any, response: Any) -> float:
            await self.step("verify")
            return 1.0

        async def close(self) -> None:
            await self.step("close")

    return Odd


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", WAYS)
def test_an_exit_or_an_awaited_cancelled_task_fails_only_its_own_rollout(rows, stage, way):
    result = ludus.collect(only_odd(stage, way), model=ScriptedModel(["done"]), input=rows(8), concurrency=2)
    assert result.metrics["counts"] == {"dispatched": 8, "completed": 4, "failed": 4, "masked": 0}
    errors = {(each.error.stage, each.error.kind, each.error.cause) for each in result.rollouts if each.error}
    assert errors == {(stage, "crash", SAYS[way])}


class FaultyTools(Resources):
    """Tools that exit, await a cancelled task or interrupt, on the loop and on a thread."""

    @tool
    async def exit_on_the_loop(self) -> str:
        """Exit."""
        await call_exit()
        return "never"

    @tool
    async def await_a_cancelled_task(self) -> str:
        """Wait for a task that was cancelled."""
        await wait_for_a_cancelled_task()
        return "never"

    @tool
    def exit_on_a_thread(self) -> str:
        """Run code that exits, as a model may write it."""
        exec("exit(3)")
        return "never"

    @tool
    def interrupt_on_a_thread(self) -> str:
        """Raise KeyboardInterrupt. A real Ctrl-C never arrives on a thread."""
        return str(interrupt())

    @tool
    async def work(self) -> str:
        """Work."""
        await asyncio.sleep(0)
        return "worked"

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


OUTPUTS = {
    "exit_on_the_loop": '{"error":"SystemExit: 0"}',
    "await_a_cancelled_task": '{"error":"CancelledError: something that it waited for was cancelled"}',
    "exit_on_a_thread": '{"error":"RuntimeError: SystemExit: 3"}',
    "interrupt_on_a_thread": '{"error":"RuntimeError: KeyboardInterrupt: "}',
    "work": "worked",
}


@pytest.mark.parametrize("together", [True, False])
def test_the_model_reads_the_exit_of_a_tool_like_any_other_error(rows, together):
    calls = {"calls": [{"name": name} for name in OUTPUTS]}
    asked = {"responses_create_params": {"input": "go", "parallel_tool_calls": together}}
    result = ludus.collect(FaultyTools, model=ScriptedModel([calls, "done"]), input=[asked])
    (rollout,) = result.rollouts
    outputs = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
    assert (rollout.reward, outputs) == (1.0, list(OUTPUTS.values()))


def test_an_exit_in_an_overridden_call_method_fails_the_rollout_at_the_tool_stage(rows):
    class Own(FaultyTools):
        async def call(self, name: str, arguments: str) -> str:
            await call_exit()
            return "never"

    calls = {"calls": [{"name": "work"}, {"name": "work"}]}
    result = ludus.collect(Own, model=ScriptedModel([calls, "done"]), input=rows(2))
    assert {(each.error.stage, each.error.cause) for each in result.rollouts} == {("tool", "SystemExit: 0")}


@pytest.mark.parametrize("way", WAYS)
def test_an_exit_in_an_agent_fails_the_rollout_at_the_agent_stage(rows, way):
    class Leaving(Agent):
        async def act(self, episode: Any) -> str:
            await WAYS[way]()
            return "never"

    environment = Environment.load(FaultyTools)
    environment.agent = Leaving()
    result = ludus.collect(environment, model=ScriptedModel(["done"]), input=rows(2))
    errors = {(each.error.stage, each.error.kind, each.error.cause) for each in result.rollouts}
    assert errors == {("agent", "crash", SAYS[way])}


@pytest.mark.parametrize("way", WAYS)
def test_an_exit_in_a_model_fails_the_rollout_at_the_model_stage(rows, way):
    async def answer(request: Any) -> Any:
        await WAYS[way]()

    result = ludus.collect(FaultyTools, model=ScriptedModel(answer), input=rows(2))
    assert {(each.error.stage, each.error.cause) for each in result.rollouts} == {("model", SAYS[way])}


@pytest.mark.parametrize("way", WAYS)
def test_an_exit_in_verify_group_fails_every_member_of_the_group(rows, way):
    class Together(Resources):
        async def verify_group(self, task: Any, responses: Any) -> Any:
            await WAYS[way]()

    result = ludus.collect(Together, model=ScriptedModel(["done"]), input=rows(2), repeats=2)
    assert [(each.error.stage, each.error.cause) for each in result.rollouts] == [("verify", SAYS[way])] * 4


async def test_cancelling_a_run_cancels_its_tools_and_closes_the_session():
    closed = []

    class Slow(Resources):
        @tool
        async def work(self) -> str:
            """Work for long."""
            begun.set()
            await asyncio.sleep(30)
            return "never"

        async def verify(self, task: Any, response: Any) -> float:
            return 1.0

        async def close(self) -> None:
            closed.append(True)

    begun = asyncio.Event()
    rows = [{"responses_create_params": {"input": "go"}}]
    calls = {"calls": [{"name": "work"}, {"name": "work"}]}
    stream = ludus.stream(Slow, model=ScriptedModel([calls, "done"]), input=rows)
    task = asyncio.create_task(anext(stream))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stream.aclose()
    assert closed == [True]
