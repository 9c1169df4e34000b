"""Several endpoints that serve the same model: which endpoint gets the next request.

A rollout keeps its endpoint, so that prefix caches hit. Every task has an order of the endpoints by hash, the same in
all processes, so that the repeats of a task share the cache of its prompt without any shared state. A new rollout goes
to the first endpoint in that order that does not have clearly more outstanding requests than the others, weighted by
latency: with a fixed number of requests in flight, an equal share for a slow endpoint would slow down the run. An
endpoint that reports a queue or a full cache gets no new rollout while another has room.

An endpoint that is unreachable or drains (503) is skipped for 1 to 30 s, longer each time, then probed with one
request. Its rollouts move to another endpoint and are counted. The pool is a pure state machine: the time is an
argument, and nothing is awaited.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from ludus.model import ServerLoad
from ludus.runtime.urls import shown_url

FIRST_SKIP, LONGEST_SKIP = 1.0, 30.0
LATENCY_WEIGHT = 0.2

#: An endpoint may cost this much more than the cheapest one before its tasks go elsewhere, and have this much more in
#: flight than the mean: latency lags behind load, so without a bound all rollouts run to the one that was idle last.
LOAD_FACTOR, LOAD_SLACK = 1.25, 2.0

#: An endpoint that takes so many times as long as the fastest one gets a rollout only if it costs least: no cache is
#: worth the wait.
SLOW = 4.0

#: After so many of its latencies without a request, an endpoint's latency no longer counts against it.
STALE_LATENCIES = 4.0

#: The use of a KV cache from which on an endpoint counts as full.
FULL_CACHE = 0.95

_MASK = (1 << 64) - 1


class Endpoint:
    """One server and its statistics."""

    __slots__ = (
        "failed",
        "latency",
        "load",
        "moved",
        "name",
        "outages",
        "outstanding",
        "served",
        "skipped_until",
        "taken_at",
        "targets",
        "url",
        "url_hash",
    )

    def __init__(self, url: str) -> None:
        self.url = url
        self.url_hash = _hash(url)
        self.name = shown_url(url)
        self.targets: dict[str, str] = {}  # the path and query of each route
        self.outstanding = 0
        self.served = 0
        self.failed = 0
        self.moved = 0  # rollouts that went on elsewhere
        self.latency: float | None = None
        self.outages = 0
        self.skipped_until = 0.0
        self.taken_at = 0.0
        self.load: ServerLoad | None = None  # its last report

    def available(self, now: float) -> bool:
        """Whether a request may go there: it is up, or its skip time is over and no probe is in flight."""
        return self.outages == 0 or (now >= self.skipped_until and self.outstanding == 0)

    @property
    def is_full(self) -> bool:
        """Whether its last report says that a new rollout would have to wait or push others out."""
        load = self.load
        return load is not None and bool((load.waiting or 0) > 1 or (load.cache or 0) >= FULL_CACHE)


class Pool:
    """Chooses endpoints. Call `answered`, `failed` or `unreachable` once for each `take`."""

    def __init__(self, urls: list[str]) -> None:
        self.endpoints = [Endpoint(url) for url in urls]
        self._endpoint_of: dict[str, Endpoint] = {}
        self._only = self.endpoints[0] if len(urls) == 1 else None

    def take(self, session: str | None, now: float) -> Endpoint:
        """The endpoint for the next request of a session."""
        if self._only is not None:
            self._only.outstanding += 1
            return self._only
        home = self._endpoint_of.get(session) if session is not None else None
        if home is None or not home.available(now):
            left, home = home, self._best(session, now)
            if left is not None and home is not left:
                left.moved += 1
            if session is not None:
                self._endpoint_of[session] = home
        home.outstanding += 1
        home.taken_at = now
        return home

    def answered(self, endpoint: Endpoint, seconds: float) -> None:
        """Record an answer. Any status shows that the endpoint is up."""
        endpoint.outstanding -= 1
        endpoint.served += 1
        endpoint.outages = 0
        before = endpoint.latency
        endpoint.latency = seconds if before is None else before + LATENCY_WEIGHT * (seconds - before)

    def failed(self, endpoint: Endpoint) -> None:
        """Record a request without an answer that is no evidence against the endpoint, such as a cancelled one."""
        endpoint.outstanding -= 1

    def unreachable(self, endpoint: Endpoint, now: float) -> None:
        """Record that the endpoint refused a request, drains or timed out, and skip the endpoint for a while."""
        endpoint.outstanding -= 1
        endpoint.failed += 1
        # Concurrent failures count as one. A server that drains still answers what it had taken, which ends an outage.
        if endpoint.outages == 0 or now >= endpoint.skipped_until:
            endpoint.outages += 1
            endpoint.skipped_until = now + min(LONGEST_SKIP, FIRST_SKIP * 2 ** (endpoint.outages - 1))

    def others_available(self, endpoint: Endpoint, now: float) -> bool:
        """Whether another endpoint can take a request that failed here."""
        return any(other is not endpoint and other.available(now) for other in self.endpoints)

    def forget(self, session: str) -> None:
        """Forget the endpoint of a finished rollout."""
        self._endpoint_of.pop(session, None)

    def stats(self) -> list[dict[str, Any]]:
        """The statistics of each endpoint."""
        return [
            {
                "url": endpoint.name,
                "served": endpoint.served,
                "failed": endpoint.failed,
                "moved": endpoint.moved,
                "outstanding": endpoint.outstanding,
                "latency": endpoint.latency,
                "resting": endpoint.outages > 0,
            }
            for endpoint in self.endpoints
        ]

    def _best(self, session: str | None, now: float) -> Endpoint:
        ready = [endpoint for endpoint in self.endpoints if endpoint.available(now)]
        if not ready:  # all are down: take the one whose skip time ends first
            return min(self.endpoints, key=lambda endpoint: endpoint.skipped_until)
        ready = [endpoint for endpoint in ready if not endpoint.is_full] or ready
        most = LOAD_FACTOR * sum(endpoint.outstanding for endpoint in ready) / len(ready) + LOAD_SLACK
        ready = [endpoint for endpoint in ready if endpoint.outstanding < most]
        known = [endpoint.latency for endpoint in ready if endpoint.latency is not None]
        fastest = min(known, default=1.0)
        costs = [_cost(endpoint, fastest, now) for endpoint in ready]
        cheapest = min(costs)
        if session is None:
            return ready[costs.index(cheapest)]
        task, bound = _hash(task_of(session)), LOAD_FACTOR * cheapest + LOAD_SLACK
        bounds = (bound if _slowness(endpoint, fastest) < SLOW else cheapest for endpoint in ready)
        near = [endpoint for endpoint, cost, limit in zip(ready, costs, bounds, strict=True) if cost <= limit]
        return max(near, key=lambda endpoint: _mixed(task ^ endpoint.url_hash))


def task_of(session: str) -> str:
    """The task of a rollout's session: the id of a rollout is that of its task, a hyphen and the repeat."""
    return session.rpartition("-")[0] or session


def _cost(endpoint: Endpoint, fastest: float, now: float) -> float:
    """The cost of one more request. Squaring the slowness keeps few requests in flight at a slow endpoint.

    The latency of an endpoint that has been idle for long is old, and only a request can renew it.
    """
    if not endpoint.outstanding and now - endpoint.taken_at > STALE_LATENCIES * (endpoint.latency or 0.0):
        return 1.0
    return (endpoint.outstanding + 1) * _slowness(endpoint, fastest) ** 2


def _slowness(endpoint: Endpoint, fastest: float) -> float:
    """How many times as long as the fastest endpoint it takes to answer."""
    return max(endpoint.latency or fastest, 1e-6) / max(fastest, 1e-6)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _mixed(value: int) -> int:
    """A number whose every bit depends on every bit of `value`."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
