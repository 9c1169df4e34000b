"""The pool keeps sessions on their endpoint, balances load and skips unreachable endpoints."""

from __future__ import annotations

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus.model import ServerLoad
from ludus.models.pool import Pool


def test_a_session_keeps_its_endpoint_until_it_is_forgotten():
    pool = Pool(["a", "b", "c"])
    home = pool.take("s-0", 0)
    for _ in range(20):
        pool.take("s-0", 0)
    assert home.outstanding == 21
    pool.forget("s-0")
    assert pool.take("s-0", 0) is not home


def test_repeats_of_a_task_share_an_endpoint_in_every_process():
    urls = [f"http://server-{number}/v1" for number in range(8)]
    homes = set()
    for _ in range(3):  # worker processes
        pool = Pool(urls)
        for task in range(40):
            taken = [pool.take(f"task-{task}-{repeat}", 0) for repeat in range(4)]
            homes.add((task, taken[0].url))
            assert len({endpoint.url for endpoint in taken[:2]}) == 1
            for endpoint in taken:
                pool.answered(endpoint, 0.1)
    assert len(homes) == 40
    assert {url for _, url in homes} == set(urls)


def test_a_server_that_goes_moves_only_its_own_tasks():
    urls = [f"http://server-{number}/v1" for number in range(8)]

    def homes(count: int) -> dict[int, str]:
        pool, urls_of = Pool(urls[:count]), {}
        for task in range(200):
            endpoint = pool.take(f"task-{task}-0", 0)
            urls_of[task] = endpoint.url
            pool.answered(endpoint, 0.1)
        return urls_of

    before, after = homes(8), homes(7)
    assert all(after[task] == url for task, url in before.items() if url != urls[7])


@given(st.lists(st.integers(0, 9), max_size=60), st.lists(st.floats(0.001, 10), min_size=3, max_size=3))
def test_no_endpoint_gets_far_more_new_rollouts_than_the_others(tasks, latencies):
    pool = Pool(["a", "b", "c"])
    for endpoint, latency in zip(pool.endpoints, latencies, strict=True):
        endpoint.latency = latency
    for number, task in enumerate(tasks):
        pool.take(f"{task}-{number}", 0)
    assert max(endpoint.outstanding for endpoint in pool.endpoints) <= 1.25 * len(tasks) / 3 + 3


def test_an_idle_endpoint_that_was_slow_is_tried_again():
    pool = Pool(["a", "b"])
    pool.endpoints[0].latency, pool.endpoints[1].latency = 60.0, 0.1
    assert {pool.take(f"task-{number}-0", 100).url for number in range(3)} == {"b"}
    pool.endpoints[1].outstanding = 0
    assert "a" in {pool.take(f"task-{number}-0", 300).url for number in range(8)}


def test_an_endpoint_many_times_slower_gets_no_rollout_for_the_sake_of_its_cache():
    pool = Pool(["a", "b", "c", "d"])
    for endpoint, latency, outstanding in zip(pool.endpoints, (0.1, 0.1, 0.1, 0.5), (20, 20, 20, 0), strict=True):
        endpoint.latency, endpoint.outstanding, endpoint.taken_at = latency, outstanding, 100.0
    assert {pool.take(f"task-{number}-0", 100).url for number in range(8)} <= {"a", "b", "c"}


def test_a_full_server_gets_no_new_rollout_while_another_has_room():
    pool = Pool(["a", "b"])
    pool.endpoints[0].load = ServerLoad(running=8, waiting=4, cache=0.99)
    pool.endpoints[1].load = ServerLoad(running=8, waiting=0, cache=0.5)
    for number in range(20):
        assert pool.take(f"task-{number}-0", 0).url == "b"


def test_rollouts_that_leave_an_endpoint_are_counted():
    pool = Pool(["a", "b"])
    home = pool.take("s-0", 0)
    pool.unreachable(home, 0)
    assert pool.take("s-0", 0.5) is not home
    assert [stats["moved"] for stats in pool.stats() if stats["url"] == home.url] == [1]
    assert sum(stats["moved"] for stats in pool.stats()) == 1


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


def test_an_endpoint_that_answers_what_it_had_taken_is_skipped_all_the_same():
    pool = Pool(["a", "b"])
    draining = pool.take("s-0", 0)
    draining.outstanding += 2
    pool.unreachable(draining, 0)
    pool.answered(draining, 0.1)
    pool.unreachable(draining, 0.2)
    assert not draining.available(0.3)


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
