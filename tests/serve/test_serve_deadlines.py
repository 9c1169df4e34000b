"""Many deadlines on one timer: late work is cancelled, other cancellations are nobody's timeout."""

from __future__ import annotations

import asyncio

import pytest

from ludus.serve import deadlines


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "SHORT", 0.0)
    monkeypatch.setattr(deadlines, "_EVERY", 0.02)


async def test_what_is_done_in_time_is_given_back():
    assert await deadlines.within(5, asyncio.sleep(0.05, "done")) == "done"


async def test_only_what_is_late_is_cancelled():
    async def late() -> str:
        with pytest.raises(TimeoutError):
            await deadlines.within(0.05, asyncio.sleep(60))
        return "went on"

    found = await asyncio.gather(late(), deadlines.within(30, asyncio.sleep(0.3, "in time")), late())
    assert found == ["went on", "in time", "went on"]


async def test_a_cancellation_from_outside_is_no_timeout():
    task = asyncio.create_task(deadlines.within(30, asyncio.sleep(60)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deadline_within_a_deadline_is_the_one_that_passes():
    async def outer() -> None:
        with pytest.raises(TimeoutError):
            await deadlines.within(0.05, asyncio.sleep(60))
        await asyncio.sleep(0)

    await deadlines.within(30, outer())


async def test_an_error_is_passed_on_and_nothing_is_left_behind():
    async def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await deadlines.within(30, broken())
    assert not any(watch._until for watch in deadlines._watches.values())


@pytest.mark.parametrize("seconds", [0.05, 0.0])
async def test_what_keeps_its_cancellation_to_itself_is_late_nevertheless(monkeypatch, seconds):
    monkeypatch.setattr(deadlines, "SHORT", seconds)  # with a timer of its own, and with the common one

    async def stubborn() -> float:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return 1.0

    with pytest.raises(TimeoutError):
        await deadlines.within(0.04, stubborn())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
