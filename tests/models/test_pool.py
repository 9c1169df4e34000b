"""The pool keeps sessions on their endpoint, balances load and skips unreachable endpoints."""

from __future__ import annotations

import heapq

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus.models.pool import Pool


def test_a_session_keeps_its_endpoint_until_it_is_forgotten():
    pool = Pool(["a", "b", "c"])
    home = pool.take("s", 0)
    for other in range(20):
        pool.take(f"other {other}", 0)
    assert pool.take("s", 0) is home
    pool.forget("s")
    assert pool.take("s", 0) is not home


def test_new_sessions_go_to_the_endpoint_with_the_fewest_outstanding_requests():
    pool = Pool(["a", "b", "c"])
    for number in range(30):
        pool.take(str(number), 0)
    assert [endpoint.outstanding for endpoint in pool.endpoints] == [10, 10, 10]


def test_an_unreachable_endpoint_is_skipped_longer_each_time_and_probed_with_one_request():
    pool = Pool(["a", "b"])
    first = pool.take("s", 0)
    pool.unreachable(first, 0)
    assert pool.take("s", 0.5) is not first
    skips = []
    now = 0.0
    for _ in range(8):
        now = first.skipped_until
        assert first.available(now)
        first.outstanding += 1
        assert not first.available(now), "only one probe at a time"
        pool.unreachable(first, now)
        skips.append(first.skipped_until - now)
    assert skips == [2, 4, 8, 16, 30, 30, 30, 30]
    now = first.skipped_until
    first.outstanding += 1
    pool.answered(first, 0.1)
    assert first.available(now)


def test_concurrent_failures_of_an_endpoint_count_as_one_outage():
    pool = Pool(["a", "b"])
    taken = [pool.take(None, 0) for _ in range(20)]
    for endpoint in taken:
        if endpoint.url == "a":
            pool.unreachable(endpoint, 1.0)
    assert pool.endpoints[0].outages == 1


def test_a_request_still_gets_an_endpoint_when_all_are_down():
    pool = Pool(["a", "b"])
    for endpoint in pool.endpoints:
        endpoint.outstanding += 1
        pool.unreachable(endpoint, 0)
    assert pool.take("s", 0.1) in pool.endpoints


def throughput(latencies: list[float], in_flight: int, rollouts: int, calls: int = 2) -> float:
    """Simulated rollouts per second, with a fixed number in flight and all calls of a rollout on one endpoint."""
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


def test_adding_a_slow_endpoint_costs_at_most_5_percent_of_throughput():
    with_slow = throughput([0.1, 0.1, 0.1, 0.5], in_flight=64, rollouts=2000)
    without = throughput([0.1, 0.1, 0.1], in_flight=64, rollouts=2000)
    assert with_slow >= 0.95 * without


class PoolMachine(RuleBasedStateMachine):
    """After any sequence of events, the outstanding requests are those that were taken and not given back."""

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
    def outstanding_requests_are_counted(self):
        assert sum(endpoint.outstanding for endpoint in self.pool.endpoints) == len(self.taken)
        assert all(endpoint.skipped_until <= self.now + 30 for endpoint in self.pool.endpoints)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, deadline=None)
