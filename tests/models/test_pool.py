"""Who gets the next request: sticky, fair, and away from the dead."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus.models.pool import Pool
from ludus.models.retry import Retries


def test_a_session_keeps_its_endpoint_until_it_is_forgotten():
    pool = Pool(["a", "b", "c"])
    home = pool.take("s", 0)
    for other in range(20):
        pool.take(f"other {other}", 0)
    assert pool.take("s", 0) is home
    pool.forget("s")
    assert pool.take("s", 0) is not home


def test_new_sessions_go_where_the_least_is_outstanding():
    pool = Pool(["a", "b", "c"])
    for number in range(30):
        pool.take(str(number), 0)
    assert [endpoint.outstanding for endpoint in pool.endpoints] == [10, 10, 10]


def test_an_unreachable_endpoint_rests_longer_each_time_and_returns_with_one_request():
    pool = Pool(["a", "b"])
    first = pool.take("s", 0)
    pool.unreachable(first, 0)
    assert pool.take("s", 0.5) is not first
    rests = []
    now = 0.0
    for _ in range(8):
        now = first.rests_until
        assert first.available(now)
        first.outstanding += 1
        assert not first.available(now), "one request at a time finds out"
        pool.unreachable(first, now)
        rests.append(first.rests_until - now)
    assert rests == [2, 4, 8, 16, 30, 30, 30, 30]
    now = first.rests_until
    first.outstanding += 1
    pool.answered(first, 0.1)
    assert first.available(now)


def test_many_requests_that_fall_together_are_one_fall():
    pool = Pool(["a", "b"])
    taken = [pool.take(None, 0) for _ in range(20)]
    for endpoint in taken:
        if endpoint.url == "a":
            pool.unreachable(endpoint, 1.0)
    assert pool.endpoints[0].downs == 1


def test_when_all_are_down_somebody_is_asked_all_the_same():
    pool = Pool(["a", "b"])
    for endpoint in pool.endpoints:
        endpoint.outstanding += 1
        pool.unreachable(endpoint, 0)
    assert pool.take("s", 0.1) in pool.endpoints


def throughput(latencies: list[float], in_flight: int, rollouts: int, calls: int = 2) -> float:
    """Rollouts a second of a fixed number in flight, each making its calls on one endpoint, in simulated time."""
    pool = Pool([str(n) for n in range(len(latencies))])
    events: list[tuple[float, int, int, object]] = []
    started = 0

    def send(now: float, session: int, left: int) -> None:
        endpoint = pool.take(str(session), now)
        heapq.heappush(events, (now + latencies[int(endpoint.url)], session, left, endpoint))

    for started in range(in_flight):
        send(0.0, started, calls)
    started = in_flight
    now = 0.0
    while events:
        now, session, left, endpoint = heapq.heappop(events)
        pool.answered(endpoint, latencies[int(endpoint.url)])
        if left > 1:
            send(now, session, left - 1)
            continue
        pool.forget(str(session))
        if started < rollouts:
            send(now, started, calls)
            started += 1
    return rollouts / now


def test_a_slow_endpoint_does_not_slow_the_others_down():
    with_slow = throughput([0.1, 0.1, 0.1, 0.5], in_flight=64, rollouts=2000)
    without = throughput([0.1, 0.1, 0.1], in_flight=64, rollouts=2000)
    assert with_slow >= 0.95 * without


class PoolMachine(RuleBasedStateMachine):
    """Whatever happens, what is outstanding is what was taken and not given back."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.now, self.taken = Pool(["a", "b", "c"]), 0.0, []

    @rule(session=st.one_of(st.none(), st.integers(0, 5).map(str)))
    def take(self, session):
        self.taken.append(self.pool.take(session, self.now))

    @precondition(lambda self: self.taken)
    @rule(how=st.sampled_from(["answered", "failed", "unreachable"]), data=st.data())
    def give_back(self, how, data):
        endpoint = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        if how == "answered":
            self.pool.answered(endpoint, data.draw(st.floats(0, 10)))
        elif how == "failed":
            self.pool.failed(endpoint)
        else:
            self.pool.unreachable(endpoint, self.now)

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds):
        self.now += seconds

    @rule(session=st.integers(0, 5).map(str))
    def forget(self, session):
        self.pool.forget(session)

    @invariant()
    def nothing_is_lost(self):
        assert sum(endpoint.outstanding for endpoint in self.pool.endpoints) == len(self.taken)
        assert all(endpoint.rests_until <= self.now + 30 for endpoint in self.pool.endpoints)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, deadline=None)


@given(st.sampled_from(["busy", "server", "dropped", "fresh"]), st.integers(1, 20), st.floats(0, 200))
def test_a_pause_is_bounded_and_never_outlasts_the_deadline(kind, tries, left):
    retries = Retries()
    pause = retries.pause(kind, tries, None, left)
    if tries > getattr(retries, kind):
        assert pause is None
    elif kind == "fresh":
        assert pause == 0.0
    elif pause is not None:
        assert 0 <= pause <= 60
        assert pause < left


def test_what_the_server_asks_for_is_honoured_up_to_the_longest_pause():
    assert Retries().pause("busy", 1, 7.0, 100) == 7.0
    assert Retries().pause("busy", 1, 5000.0, 100) == 60.0
    assert Retries().pause("busy", 1, 7.0, 5.0) is None


def test_pauses_grow():
    retries = Retries(first_pause=1.0, busy=20)
    assert [retries.pause("busy", n, None, 1e9) <= 2 ** (n - 1) for n in range(1, 7)] == [True] * 6
    assert retries.pause("busy", 20, None, 1e9) == pytest.approx(45, abs=15.1)
