"""Adaptive concurrency: against a simulated server, and under any sequence of events."""

from __future__ import annotations

import asyncio
import heapq

from hypothesis import given
from hypothesis import strategies as st

from ludus.collection.adaptive import Adaptive, Gate
from ludus.collection.fleet_load import Fleet, FleetLoad
from ludus.model import ServerLoad


def play(adaptive: Adaptive, capacity: int, latency: float, seconds: float) -> list[int]:
    """The limits over time with a server that answers `capacity` requests at once and says 429 to the others."""
    events: list[tuple[float, int, bool]] = []
    limits, now, number = [], 0.0, 0
    busy = 0
    while now < seconds:
        while len(events) < adaptive.limit:
            number += 1
            accepted = busy < capacity
            busy += accepted
            heapq.heappush(events, (now + (latency if accepted else 0.01), number, accepted))
        in_flight = len(events)
        now, _, accepted = heapq.heappop(events)
        if accepted:
            busy -= 1
            adaptive.answered(latency, in_flight, now)
        else:
            adaptive.pressed(now)
        limits.append(adaptive.limit)
    return limits


def test_the_limit_finds_the_capacity_of_a_server_and_stays_near_it():
    late = play(Adaptive(start=4), capacity=50, latency=0.2, seconds=120)[-2000:]
    assert min(late) >= 25
    assert max(late) <= 60


def test_a_limit_that_starts_too_high_falls_within_20_seconds():
    limits = play(Adaptive(start=1000), capacity=20, latency=0.2, seconds=20)
    assert limits[-1] <= 30


def test_slower_answers_lower_the_limit():
    adaptive = Adaptive(start=100)
    for step in range(200):
        adaptive.answered(0.1, 100, step * 0.1)
    before = adaptive.limit
    for step in range(200):
        adaptive.answered(1.0, 100, 30 + step * 0.1)
    assert adaptive.limit < before


def test_a_limit_that_is_not_reached_does_not_grow():
    adaptive = Adaptive(start=8)
    for step in range(1000):
        adaptive.answered(0.1, in_flight=3, now=step)
    assert adaptive.limit == 8


@given(
    st.integers(1, 50),
    st.lists(
        st.tuples(st.sampled_from(["answered", "pressed"]), st.floats(0, 100), st.integers(0, 100), st.floats(0, 5))
    ),
)
def test_the_limit_stays_within_its_bounds(start, events):
    adaptive, now = Adaptive(start=start, minimum=2, maximum=40), 0.0
    for what, seconds, in_flight, step in events:
        now += step
        if what == "answered":
            adaptive.answered(seconds, in_flight, now)
        else:
            adaptive.pressed(now)
        assert 2 <= adaptive.limit <= 40


@given(st.lists(st.sampled_from(["enter", "leave", "cancel", "press", "admit"]), max_size=60))
def test_a_gate_never_admits_more_than_the_limit_and_keeps_its_count(steps):
    async def main() -> None:
        adaptive = Adaptive(start=3, minimum=1, maximum=10)
        gate = Gate(adaptive)
        tasks: list[asyncio.Task[None]] = []
        inside = 0
        for now, step in enumerate(steps):
            if step == "enter":
                tasks.append(asyncio.create_task(gate.enter()))
            elif step == "leave" and inside:
                gate.leave()
                inside -= 1
            elif step == "cancel" and tasks and not tasks[-1].done():
                tasks.pop().cancel()
            elif step == "press":
                adaptive.pressed(now * 100.0)
            elif step == "admit":
                gate.admit()
            before = gate.inside
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside += sum(task.done() and not task.cancelled() for task in tasks)
            tasks = [task for task in tasks if not task.done()]
            assert gate.inside == inside
            assert inside <= max(adaptive.limit, before, 3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert gate.inside == inside

    asyncio.run(main())


def test_reports_that_stop_leave_the_latency_in_charge():
    adaptive = Adaptive(start=8)
    adaptive.answered(0.1, 8, 0.0)
    adaptive.reported(FleetLoad(running=8, waiting=0), 8, 1.0)
    grown = adaptive.limit
    for step in range(100):
        adaptive.answered(0.1, 100, 2.0 + step * 0.01)
    assert adaptive.limit == grown > 8
    for step in range(100):
        adaptive.answered(0.1, 100, 100.0 + step * 0.01)
    assert adaptive.limit > grown


def test_a_server_that_was_started_again_has_preempted_nothing():
    fleet = Fleet()
    fleet.take([ServerLoad(running=1, preempted=50), None])
    load = fleet.take([ServerLoad(running=1, preempted=2), ServerLoad(running=1, preempted=9)])
    assert load is not None
    assert load.preempted == 0
