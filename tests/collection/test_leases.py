"""Leases and frames of worker processes, without processes."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus import Resources
from ludus.collection.engines.frames import BodyParts, Frames, frame
from ludus.collection.engines.leases import MAX_DEATHS, Deaths, HandOut, Leases
from ludus.collection.plan import TaskWork
from ludus.environment import Environment

TASKS, REPEATS, WORKERS = 6, 4, 3


class Constant(Resources):
    """Rewards everything."""

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


class HandingOut(RuleBasedStateMachine):
    """Work is leased, finished, lost with its worker and reported late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        environment = Environment.load(Constant)
        self.leases = Leases()
        tasks = [TaskWork(f"t{n}", environment, {}, dict.fromkeys(range(REPEATS), 1)) for n in range(TASKS)]
        self.hand_out = HandOut(iter(tasks))
        self.recorded: list[tuple[str, int]] = []
        self.given: list[tuple[int, int, int]] = []  # worker, lease, repeat: all that was ever sent
        self.ended: set[int] = set()

    @rule(worker=st.integers(1, WORKERS), size=st.integers(1, 6))
    def lease(self, worker: int, size: int) -> None:
        if self.hand_out.has_alone and not self.leases.missing_of(worker):
            taken = self.hand_out.take_alone()
        elif (found := self.hand_out.take(size)) is not None:
            taken = found
        else:
            return
        granted = self.leases.grant(worker, *taken)
        self.given += [(worker, granted.number, repeat) for repeat in granted.missing]

    @precondition(lambda self: self.given)
    @rule(choice=st.integers(0, 10**6))
    def result(self, choice: int) -> None:
        """Any result, also one that was recorded before or comes from a worker that is gone."""
        _, number, repeat = self.given[choice % len(self.given)]
        lease = self.leases.finish(number, repeat)
        assert lease is None or number not in self.ended
        if lease is not None:
            self.recorded.append((lease.work.task_id, repeat))

    @rule(worker=st.integers(1, WORKERS))
    def die(self, worker: int) -> None:
        for lease in self.leases.revoke(worker):
            self.ended.add(lease.number)
            for repeat in self.hand_out.put_back(lease):
                assert lease.deaths[repeat].workers == MAX_DEATHS
                self.recorded.append((lease.work.task_id, repeat))

    @invariant()
    def nothing_is_recorded_twice(self) -> None:
        assert len(set(self.recorded)) == len(self.recorded)

    def teardown(self) -> None:
        """Whatever happened, the rest can be played, and then every rollout is recorded once."""
        for worker in range(1, WORKERS + 1):
            for lease in self.leases.of(worker):
                for repeat in list(lease.missing):
                    assert self.leases.finish(lease.number, repeat) is not None
                    self.recorded.append((lease.work.task_id, repeat))
        while not self.hand_out.is_empty:
            taken = self.hand_out.take_alone() if self.hand_out.has_alone else self.hand_out.take(3)
            assert taken is not None
            self.recorded += [(taken[0].task_id, repeat) for repeat in taken[0].repeats]
        assert sorted(self.recorded) == [(f"t{n}", repeat) for n in range(TASKS) for repeat in range(REPEATS)]
        assert self.leases.missing == 0


TestHandingOut = HandingOut.TestCase
TestHandingOut.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_only_the_repeat_that_a_lone_worker_was_playing_is_blamed_for_its_death():
    environment, leases = Environment.load(Constant), Leases()
    lease = leases.grant(
        1, TaskWork("t", environment, {}, {0: 1, 1: 1, 2: 1}), {repeat: Deaths(2) for repeat in range(3)}
    )
    assert lease.is_alone
    leases.start(lease.number, 0)
    assert leases.finish(lease.number, 0) is not None
    leases.start(lease.number, 1)
    hand_out = HandOut(iter(()))
    (ended,) = leases.revoke(1)
    assert hand_out.put_back(ended) == [1]
    work, deaths = hand_out.take_alone()
    assert (work.repeats, deaths) == ({2: 1}, {2: (2, 0)})


def test_a_rollout_that_ends_its_workers_fails_even_if_it_starts_over_each_time():
    leases, hand_out = Leases(), HandOut(iter(()))
    taken = TaskWork("t", Environment.load(Constant), {}, {0: 1}), dict[int, Deaths]()
    for death in range(1, MAX_DEATHS + 1):
        lease = leases.grant(1, *taken)
        for turns in range(1, 5):  # from its first turn, because its tools answered something else
            lease.went_on(0, turns)
        (ended,) = leases.revoke(1)
        assert hand_out.put_back(ended) == ([0] if death == MAX_DEATHS else [])
        if death < MAX_DEATHS:
            taken = hand_out.take_alone() if hand_out.has_alone else hand_out.take(1) or taken


def test_a_rollout_that_gets_further_is_not_blamed_for_the_workers_that_died():
    leases, hand_out = Leases(), HandOut(iter(()))
    taken = TaskWork("t", Environment.load(Constant), {}, {0: 1}), dict[int, Deaths]()
    for turns in range(1, 9):
        lease = leases.grant(1, *taken)
        lease.went_on(0, turns)
        (ended,) = leases.revoke(1)
        assert hand_out.put_back(ended) == []
        taken = hand_out.take(1) or taken


@given(
    sent=st.lists(st.tuples(st.dictionaries(st.text(), st.integers(0, 9)), st.lists(st.binary(max_size=40)))),
    cut=st.integers(0, 30),
    step=st.integers(1, 50),
)
@settings(deadline=None)
def test_frames_arrive_whole_in_any_pieces_and_a_torn_frame_does_not(sent, cut, step):
    data = b"".join(frame(head, body) for head, body in sent)
    data, whole = (data[:-cut], False) if cut else (data, True)

    async def received() -> list[Any]:
        reader = asyncio.StreamReader()
        for start in range(0, len(data), step):
            reader.feed_data(data[start : start + step])
        reader.feed_eof()
        return [(head, bytes(body)) async for head, body in Frames(reader)]

    expected = [(orjson.loads(orjson.dumps(head)), b"".join(body)) for head, body in sent]
    found = asyncio.run(received())
    assert found == expected if whole else found == expected[: len(found)]
    assert whole or not sent or len(found) < len(sent)


async def test_a_reader_that_is_cancelled_within_a_frame_goes_on_with_the_same_frame():
    reader = asyncio.StreamReader()
    received, data = Frames(reader), frame({"a": 1}, [b"body"])
    for byte in data[:-1]:
        reader.feed_data(bytes([byte]))
        reading = asyncio.ensure_future(anext(received))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    reader.feed_data(data[-1:])
    assert await anext(received) == ({"a": 1}, b"body")


def test_the_parts_of_a_body_are_read_by_their_lengths():
    parts = BodyParts(memoryview(b"abcde"))
    assert [bytes(parts.next(length)) for length in (2, 0, 3)] == [b"ab", b"", b"cde"]
