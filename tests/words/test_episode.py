"""The steps of a rollout: every opened session is closed, every failure has a stage, every step has a deadline."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import CEILING, until_async

import ludus
from ludus import Agent, Failure, Outcome, Resources, ScriptedModel, Verdict, tool
from ludus.environment import Environment
from ludus.episode import Episode, play
from ludus.limits import Limits
from ludus.rollout import Job

CALL = {"call": "work", "arguments": {}}


class Recorder(Resources):
    """Logs each stage, and pauses or raises in the stages that a test chooses."""

    log: list[str] = []
    pause: dict[str, float] = {}
    fault: dict[str, BaseException] = {}

    async def step(self, stage: str) -> None:
        self.log.append(stage)
        await asyncio.sleep(self.pause.get(stage, 0))
        if stage in self.fault:
            raise self.fault[stage]

    async def open(self, task: Any) -> None:
        await self.step("open")

    @tool
    async def work(self) -> str:
        """Work."""
        await self.step("tool")
        return "worked"

    async def verify(self, task: Any, response: Any) -> float:
        await self.step("verify")
        return 1.0

    async def close(self) -> None:
        await self.step("close")


def recorder(pause: dict[str, float] | None = None, fault: dict[str, BaseException] | None = None) -> type[Recorder]:
    return type("Fresh", (Recorder,), {"log": [], "pause": pause or {}, "fault": fault or {}})


def episode(resources: type[Resources], script: Any = None, agent: Agent | None = None, **limits: float) -> Any:
    environment = Environment.load(resources)
    row = {"responses_create_params": {"input": "hello"}}
    job = Job("t-0", "t", 0, resources.Task.model_validate(row), row)
    made = Episode(job, resources(environment.config), script or ScriptedModel([CALL, "done"]), Limits(**limits))
    return play(made, agent or environment.agent)


async def test_a_rollout_opens_acts_verifies_and_closes_in_this_order():
    resources = recorder()
    rollout = await episode(resources)
    assert resources.log == ["open", "tool", "verify", "close"]
    assert (rollout.outcome, rollout.reward, rollout.stop_reason) == (Outcome.COMPLETED, 1.0, "completed")
    assert set(rollout.timings) == {"open", "model", "tool", "verify", "close", "total"}


@pytest.mark.parametrize("stage", ["open", "verify", "close"])
async def test_a_crash_is_attributed_to_its_stage_and_the_session_is_closed(stage):
    resources = recorder(fault={stage: ValueError("no luck")})
    rollout = await episode(resources)
    assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, None)
    assert (rollout.error.stage, rollout.error.kind, rollout.error.cause) == (stage, "crash", "ValueError: no luck")
    assert "test_episode.py" in rollout.error.where
    assert resources.log[-1] == "close"


async def test_the_model_reads_the_error_of_a_tool_and_the_rollout_completes():
    rollout = await episode(recorder(fault={"tool": ValueError("no luck")}))
    assert rollout.outcome is Outcome.COMPLETED
    assert rollout.response.output[1]["output"] == '{"error":"ValueError: no luck"}'


async def test_a_tool_may_fail_the_rollout_with_a_typed_failure():
    rollout = await episode(recorder(fault={"tool": Failure("database", "the pool is gone")}))
    assert (rollout.error.stage, rollout.error.kind) == ("tool", "database")


@pytest.mark.parametrize("stage", ["open", "tool", "verify", "close"])
async def test_every_stage_has_a_deadline(stage):
    resources = recorder(pause={stage: 3600})
    rollout = await episode(resources, **{stage: 0.05})
    what = "tool `work`" if stage == "tool" else stage
    cause = f"{what} timed out after 0.05 s"
    assert (rollout.error.stage, rollout.error.kind, rollout.error.cause) == (stage, "timeout", cause)
    assert resources.log[-1] == "close"


async def test_a_model_call_has_a_deadline():
    rollout = await episode(recorder(), ScriptedModel([{"text": "late", "delay": 30}]), model=0.05)
    assert (rollout.error.stage, rollout.error.kind) == ("model", "timeout")


async def test_the_whole_rollout_has_a_deadline_in_any_stage():
    rollout = await episode(recorder(pause={"tool": 3600}), rollout=1.0)
    assert (rollout.error.stage, rollout.error.cause) == ("tool", "the rollout timed out after 1 s")

    class Sleepy(Agent):
        async def act(self, episode: Any) -> str:
            await asyncio.sleep(3600)
            return "never"

    rollout = await episode(recorder(), agent=Sleepy(), rollout=1.0)
    assert (rollout.error.stage, rollout.error.kind) == ("agent", "timeout")


async def test_a_timeout_error_raised_by_environment_code_keeps_its_text():
    rollout = await episode(recorder(fault={"open": TimeoutError("the database did not answer")}))
    assert (rollout.error.kind, rollout.error.cause) == ("timeout", "the database did not answer")


async def test_a_short_deadline_after_a_long_one_is_enforced():
    resources = recorder(pause={"verify": 3600})
    rollout = await episode(resources, open=60, model=60, tool=60, verify=0.05)
    assert rollout.error.stage == "verify"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None, "1", [1]])
async def test_only_a_finite_number_is_a_reward(bad):
    class Bad(Recorder):
        async def verify(self, task: Any, response: Any) -> Any:
            return bad

    rollout = await episode(Bad)
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("verify", "bad_verdict", None)


async def test_a_verdict_may_mask_a_rollout_and_keeps_its_reward():
    class Masking(Recorder):
        async def verify(self, task: Any, response: Any) -> Verdict:
            return Verdict(1.0, mask="the user simulator failed")

    rollout = await episode(Masking)
    assert (rollout.outcome, rollout.reward) == (Outcome.MASKED, 1.0)
    assert rollout.to_row()["mask"] == "the user simulator failed"


async def test_plain_functions_run_off_the_event_loop():
    working, judging = threading.Barrier(21), threading.Barrier(21)

    class Blocking(Resources):
        @tool
        def work(self) -> str:
            """Work."""
            working.wait(CEILING)
            return "worked"

        def verify(self, task: Any, response: Any) -> float:
            judging.wait(CEILING)
            return 1.0

    async def let_go_on() -> None:
        """Only a loop that turns gets here."""
        for barrier in (working, judging):
            await until_async(lambda barrier=barrier: barrier.n_waiting == 20)  # type: ignore[misc]
            barrier.wait(CEILING)

    *rollouts, _ = await asyncio.gather(*(episode(Blocking) for _ in range(20)), let_go_on())
    assert [rollout.response.output[1]["output"] for rollout in rollouts] == ["worked"] * 20
    assert [rollout.reward for rollout in rollouts] == [1.0] * 20


async def test_a_hanging_close_ends_at_its_deadline_even_when_cancelled_twice():
    resources = recorder(pause={"tool": 3600, "close": 3600})
    task = asyncio.create_task(episode(resources, close=0.1))
    for stage in ("tool", "close"):
        await until_async(lambda stage=stage: stage in resources.log, every=0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert resources.log == ["open", "tool", "close"]


@settings(max_examples=150, deadline=None)
@given(
    steps=st.integers(0, 60),
    again=st.integers(0, 10),
    broken=st.sampled_from([None, "open", "tool", "verify", "close"]),
    calls=st.integers(1, 3),
)
def test_a_rollout_cancelled_at_any_moment_closes_its_session(steps, again, broken, calls):
    class Stepping(Recorder):
        log: list[str] = []

        async def step(self, stage: str) -> None:
            self.log.append(stage)
            for _ in range(4):
                await asyncio.sleep(0)
            self.log.append(f"{stage} done")
            if stage == broken:
                raise RuntimeError("broken")

    async def answer(request: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        return {"calls": [{"name": "work"}] * calls} if request.turn == 0 else "done"

    async def main() -> None:
        task = asyncio.create_task(episode(Stepping, ScriptedModel(answer)))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(again):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing outlives the rollout"

    asyncio.run(main())
    assert Stepping.log.count("open") == Stepping.log.count("close") == Stepping.log.count("close done") <= 1


async def test_200_concurrent_rollouts_equal_the_same_200_one_by_one():
    rows = [
        {"responses_create_params": {"input": "count"}, "initial_count": n % 7, "expected_count": n % 7 + n % 3, "n": n}
        for n in range(200)
    ]

    async def answer(request: Any) -> Any:
        await asyncio.sleep((request.seed % 5) / 1000)
        if request.turn < 3:
            return {"call": "increment_counter", "arguments": {"count": (request.seed + request.turn) % 2}}
        return {"call": "get_counter_value"} if request.turn == 3 else "done"

    async def collect(concurrency: int) -> list[Any]:
        stream = ludus.stream(
            "example_session_state_mgmt", model=ScriptedModel(answer), input=rows, concurrency=concurrency
        )
        found = [(rollout.rollout_id, rollout.reward, rollout.response.output) async for rollout in stream]
        return sorted(found, key=lambda triple: triple[0])

    together, alone = await collect(200), await collect(1)
    assert together == alone
    assert len({reward for _, reward, _ in alone}) == 2


async def test_a_verify_that_swallows_its_cancel_is_a_timeout_in_every_rollout():
    class Stubborn(Recorder):
        async def verify(self, task: Any, response: Any) -> float:
            for _ in range(2 if task.n == 1 else 1):
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    pass
            return 1.0 if task.n else 0.0

    rows = [{"responses_create_params": {"input": "hello"}, "n": n} for n in range(3)]
    stream = ludus.stream(
        Stubborn, model=ScriptedModel(["done"]), input=rows, concurrency=1, settings={"limits.verify": 0.05}
    )
    found = [(rollout.reward, rollout.error.stage, rollout.error.kind) async for rollout in stream]
    assert found == [(None, "verify", "timeout")] * 3


async def test_a_failure_that_is_its_own_cause_is_still_reported():
    """`raise failure from failure` makes the chain of causes a cycle."""

    class Judged(Recorder):
        log: list[str] = []

        async def verify(self, task: Any, response: Any) -> float:
            try:
                raise Failure("judge", "the judge is asleep")
            except Failure as failure:
                try:
                    raise failure from failure
                except Failure as again:
                    raise RuntimeError("no verdict") from again

    (rollout,) = [each async for each in ludus.stream(Judged, model=ScriptedModel(["done"]), input=[
        {"responses_create_params": {"input": "x"}}
    ])]  # fmt: skip
    assert rollout.error is not None
    assert "the judge is asleep" in rollout.error.cause
