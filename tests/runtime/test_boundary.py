"""The boundary: whatever a step does, it ends with a result, with a failure that has a stage, or with an interrupt."""

from __future__ import annotations

import asyncio
import types
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.errors import Failure, Interrupt
from ludus.runtime import deadline
from ludus.runtime.boundary import finish, in_time, step, together
from ludus.runtime.deadline import Deadline, queueing

LONG, SHORT = 60.0, 0.01
ERRORS = (ValueError("wrong"), TimeoutError("the database did not answer"), SystemExit(3), Failure("judge", "down"))


def raises(error: BaseException) -> Any:
    async def work() -> None:
        raise error

    return work()


async def swallowing(times: int, end: Any) -> Any:
    """A step that swallows its first cancels, then returns or raises."""
    for _ in range(times):
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            continue
    if isinstance(end, BaseException):
        raise end
    return end


async def waiting_for_a_cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.fixture(autouse=True)
def _cancel_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_CANCEL_AGAIN", 0.01)


ends = st.sampled_from(["value", *ERRORS])
shared_deadlines = st.booleans()


async def outcome(work: Any, seconds: float, shared: bool) -> Any:
    """What a step ends with, on a deadline of its own or on one that a task keeps for many steps."""
    deadline = Deadline(LONG, LONG) if shared else None
    if deadline is not None:
        deadline.start()
    timings: dict[str, float] = {}
    try:
        return await step("verify", seconds, work, "the work", deadline, timings)
    except Failure as failure:
        return failure
    finally:
        assert timings["verify"] >= 0
        if deadline is not None:
            await step("verify", LONG, asyncio.sleep(0), deadline=deadline)  # the task can go on
            deadline.leave(last=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), ends, shared_deadlines)
def test_a_step_that_is_late_is_a_timeout_whatever_it_does_then(swallowed: int, end: Any, shared: bool) -> None:
    async def main() -> None:
        late = swallowing(swallowed, end) if swallowed else asyncio.sleep(LONG, end)
        failure = await outcome(late, SHORT, shared)
        assert (failure.stage, failure.kind) == ("verify", "timeout")
        assert failure.cause == "the work timed out after 0.01 s"
        assert _pending_cancels() == 0

    asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(ends, shared_deadlines)
def test_a_step_in_time_gives_its_value_or_its_failure(end: Any, shared: bool) -> None:
    async def main() -> None:
        found = await outcome(swallowing(0, end), LONG, shared)
        if not isinstance(end, BaseException):
            assert found == end
        else:
            kinds = {ValueError: "crash", SystemExit: "crash", TimeoutError: "timeout", Failure: "judge"}
            assert (found.stage, found.kind) == ("verify", kinds[type(end)])
            assert str(end.cause if isinstance(end, Failure) else end) in found.cause

    asyncio.run(main())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([SHORT, LONG]), shared_deadlines)
def test_a_cancel_from_outside_is_never_a_failure(seconds: float, shared: bool) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def stubborn() -> None:
            """Waits for both cancels, the deadline's and the caller's."""
            begun.set()
            while _pending_cancels() < (2 if seconds == SHORT else 1):
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    continue
            raise asyncio.CancelledError

        task = asyncio.create_task(outcome(stubborn(), seconds, shared))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), Interrupt()])
async def test_interrupts_pass_through_unchanged(interrupt):
    with pytest.raises(type(interrupt)) as caught:
        await step("tool", LONG, raises(interrupt))
    assert caught.value is interrupt


async def test_a_cancelled_error_that_nothing_asked_for_is_a_failure_of_the_step():
    with pytest.raises(Failure) as caught:
        await step("tool", LONG, waiting_for_a_cancelled_future())
    assert (caught.value.stage, caught.value.kind) == ("tool", "crash")


async def test_a_failure_keeps_the_stage_of_the_innermost_step():
    with pytest.raises(Failure) as caught:
        await step("agent", LONG, step("tool", LONG, raises(ValueError("inner"))))
    assert caught.value.stage == "tool"


async def test_a_failure_that_passes_several_steps_keeps_its_first_cause():
    failure = Failure("judge", "down")

    async def work() -> None:
        raise failure from OSError("disk full")

    with pytest.raises(Failure) as caught:
        await step("agent", LONG, step("tool", LONG, work()))
    assert caught.value is failure
    assert isinstance(failure.__cause__, OSError)


async def test_the_inner_of_two_deadlines_passes_without_ending_the_outer_step():
    async def outer() -> str:
        with pytest.raises(Failure, match="tool timed out"):
            await step("tool", SHORT, asyncio.sleep(LONG))
        return "went on"

    assert await step("agent", LONG, outer()) == "went on"


async def test_the_deadline_of_the_whole_job_ends_a_step_with_a_longer_limit():
    deadline = Deadline(SHORT, SHORT)
    deadline.start()
    with pytest.raises(Failure, match=r"the rollout timed out after 0\.01 s"):
        await step("tool", LONG, asyncio.sleep(LONG), deadline=deadline)
    deadline.leave(last=True)


async def test_no_timer_is_left_behind():
    loop = asyncio.get_running_loop()
    before = len([handle for handle in loop._scheduled if not handle.cancelled()])  # type: ignore[attr-defined]
    await step("tool", LONG, asyncio.sleep(0))
    await in_time(LONG, asyncio.sleep(0))
    after = len([handle for handle in loop._scheduled if not handle.cancelled()])  # type: ignore[attr-defined]
    assert after == before


async def test_work_that_never_suspends_arms_no_timer(monkeypatch: pytest.MonkeyPatch):
    loop, armed = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later
    monkeypatch.setattr(
        loop, "call_later", lambda seconds, *call: (armed.append(seconds), call_later(seconds, *call))[1]
    )
    assert await step("tool", LONG, swallowing(0, "value")) == "value"
    assert await in_time(LONG, swallowing(0, "value")) == "value"
    with pytest.raises(Failure, match="wrong"):
        await step("tool", LONG, raises(ValueError("wrong")))
    assert armed == []
    await step("tool", LONG, asyncio.sleep(0))
    assert len(armed) == 1
    assert armed[0] <= LONG


async def test_the_clock_stands_still_for_work_that_queues_before_it_suspends():
    async def queued() -> str:
        with queueing():
            await asyncio.sleep(10 * SHORT)
        return "value"

    assert await step("tool", SHORT, queued()) == "value"


async def relaying(waits: list[str]) -> list[str]:
    """Work that waits for futures which end with values and errors, and keeps what it gets."""
    loop, got = asyncio.get_running_loop(), list[str]()
    for wait in waits:
        future: asyncio.Future[str] = loop.create_future()
        if wait == "pause":
            await asyncio.sleep(0)
        elif wait == "error":
            loop.call_soon(future.set_exception, ValueError(wait))
            with pytest.raises(ValueError, match="error"):
                await future
        else:
            loop.call_soon(future.set_result, wait)
            got.append(await future)
    return got


@given(st.lists(st.sampled_from(["pause", "error", "a", "b"]), max_size=6))
def test_values_and_errors_reach_work_that_suspends_under_a_deadline(waits: list[str]):
    async def main() -> None:
        wanted = [wait for wait in waits if wait in ("a", "b")]
        assert await step("tool", LONG, relaying(waits)) == wanted
        assert await in_time(LONG, relaying(waits)) == wanted

    asyncio.run(main())


@pytest.mark.parametrize("end", ["value", ValueError("no")])
async def test_in_time_passes_on_what_the_work_ends_with(end):
    if isinstance(end, ValueError):
        with pytest.raises(ValueError, match="no"):
            await in_time(LONG, swallowing(0, end))
    else:
        assert await in_time(LONG, swallowing(0, end)) == end


@pytest.mark.parametrize("swallowed", [0, 2])
async def test_in_time_raises_timeout_error_whatever_late_work_returns(swallowed):
    work = swallowing(swallowed, "late") if swallowed else asyncio.sleep(LONG)
    with pytest.raises(TimeoutError, match="timed out after 0.01 s"):
        await in_time(SHORT, work)
    assert _pending_cancels() == 0


async def test_finish_ends_its_work_although_the_task_is_cancelled_twice():
    ended, begun = [], asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.sleep(0.05)
        ended.append(True)

    task = asyncio.create_task(finish(work()))
    await begun.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_together_cancels_and_awaits_the_others_when_one_fails():
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            ended.append("slow")

    with pytest.raises(ValueError, match="wrong"):
        await together([slow(), raises(ValueError("wrong"))])
    assert ended == ["slow"]


async def test_together_gives_the_results_in_their_order():
    assert await together([asyncio.sleep(0.02, "first"), asyncio.sleep(0, "second")]) == ["first", "second"]


def _pending_cancels() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


class Iterates:
    """An awaitable whose iterator has neither `send` nor `throw`."""

    def __await__(self):
        return iter([None])


@types.coroutine
def old_coroutine():
    yield
    return 5


@pytest.mark.parametrize("own", [True, False])
async def test_every_awaitable_can_be_a_step(own: bool):
    deadline = None if own else Deadline(60.0, 60.0)
    if deadline is not None:
        deadline.start()
    assert await step("tool", 60.0, old_coroutine(), deadline=deadline) == 5
    assert await step("tool", 60.0, Iterates(), deadline=deadline) is None
    assert await in_time(60.0, old_coroutine()) == 5
    assert await in_time(60.0, Iterates()) is None
