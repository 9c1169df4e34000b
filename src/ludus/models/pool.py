"""Several endpoints that serve the same model: which endpoint gets the next request.

A rollout keeps its endpoint, so that prefix caches hit. A new rollout goes to the endpoint with the fewest outstanding
requests, weighted by latency: with a fixed number of requests in flight, an equal share for a slow endpoint would slow
down the run. An unreachable endpoint is skipped for 1 to 30 s, longer each time, then probed with one request. The pool
is a pure state machine: the time is an argument, and nothing is awaited.
"""

from __future__ import annotations

from typing import Any

from ludus.model import ServerLoad
from ludus.runtime.urls import shown_url

FIRST_SKIP, LONGEST_SKIP = 1.0, 30.0
LATENCY_WEIGHT = 0.2


class Endpoint:
    """One server and its statistics."""

    __slots__ = (
        "failed",
        "latency",
        "load",
        "name",
        "outages",
        "outstanding",
        "served",
        "skipped_until",
        "targets",
        "url",
    )

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = shown_url(url)
        self.targets: dict[str, str] = {}  # the path and query of each route
        self.outstanding = 0
        self.served = 0
        self.failed = 0
        self.latency: float | None = None
        self.outages = 0
        self.skipped_until = 0.0
        self.load: ServerLoad | None = None  # its last report

    def available(self, now: float) -> bool:
        """Whether a request may go there: it is up, or its skip time is over and no probe is in flight."""
        return self.outages == 0 or (now >= self.skipped_until and self.outstanding == 0)


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
            home = self._best(now)
            if session is not None:
                self._endpoint_of[session] = home
        home.outstanding += 1
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
        """Record that the endpoint refused a request or timed out, and skip the endpoint for a while."""
        endpoint.outstanding -= 1
        endpoint.failed += 1
        if now >= endpoint.skipped_until:  # concurrent failures count as one
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
                "outstanding": endpoint.outstanding,
                "latency": endpoint.latency,
                "resting": endpoint.outages > 0,
            }
            for endpoint in self.endpoints
        ]

    def _best(self, now: float) -> Endpoint:
        ready = [endpoint for endpoint in self.endpoints if endpoint.available(now)]
        if not ready:  # all are down: take the one whose skip time ends first
            return min(self.endpoints, key=lambda endpoint: endpoint.skipped_until)
        known = [endpoint.latency for endpoint in ready if endpoint.latency is not None]
        fastest = min(known, default=1.0)
        return min(ready, key=lambda endpoint: _cost(endpoint, fastest))


def _cost(endpoint: Endpoint, fastest: float) -> float:
    """The cost of one more request. Squaring the slowness keeps few requests in flight at a slow endpoint."""
    slowness = max(endpoint.latency or fastest, 1e-6) / max(fastest, 1e-6)
    return (endpoint.outstanding + 1) * slowness * slowness
