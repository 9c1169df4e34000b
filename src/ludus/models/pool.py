"""Several endpoints that serve the same model: who gets the next request.

A rollout keeps its endpoint, so that prefix caches hit. A new one goes where the least is outstanding, weighed by
how slowly an endpoint has been answering: with fixed work in flight, a slow endpoint that got its equal share would
slow everything down. An endpoint that cannot be reached is left alone for a while, longer each time, and then tried
with one request. A pure state machine: time comes in as an argument, nothing is awaited.
"""

from __future__ import annotations

from typing import Any

from ludus.runtime.urls import shown_url

FIRST_REST, LONGEST_REST = 1.0, 30.0
MEMORY = 0.2


class Endpoint:
    """One server, and what is known of it."""

    __slots__ = ("addresses", "downs", "failed", "latency", "name", "outstanding", "rests_until", "served", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = shown_url(url)
        self.addresses: dict[str, Any] = {}  # of the routes behind it, parsed once
        self.outstanding = 0
        self.served = 0
        self.failed = 0
        self.latency: float | None = None
        self.downs = 0
        self.rests_until = 0.0

    def available(self, now: float) -> bool:
        """Whether a request may go there: it is well, or it has rested and nobody is trying it just now."""
        return self.downs == 0 or (now >= self.rests_until and self.outstanding == 0)


class Pool:
    """Chooses endpoints. Each `take` is followed by one `answered`, `failed` or `unreachable`."""

    def __init__(self, urls: list[str]) -> None:
        self.endpoints = [Endpoint(url) for url in urls]
        self._homes: dict[str, Endpoint] = {}
        self._only = self.endpoints[0] if len(urls) == 1 else None

    def take(self, session: str | None, now: float) -> Endpoint:
        """The endpoint for the next request of a session."""
        if self._only is not None:
            self._only.outstanding += 1
            return self._only
        home = self._homes.get(session) if session is not None else None
        if home is None or not home.available(now):
            home = self._best(now)
            if session is not None:
                self._homes[session] = home
        home.outstanding += 1
        return home

    def answered(self, endpoint: Endpoint, seconds: float) -> None:
        """A request was answered, with whatever status: the endpoint is alive."""
        endpoint.outstanding -= 1
        endpoint.served += 1
        endpoint.downs = 0
        before = endpoint.latency
        endpoint.latency = seconds if before is None else before + MEMORY * (seconds - before)

    def failed(self, endpoint: Endpoint) -> None:
        """A request ended without an answer, which says nothing about the endpoint (it was cancelled)."""
        endpoint.outstanding -= 1

    def unreachable(self, endpoint: Endpoint, now: float) -> None:
        """The endpoint refused or dropped a request: let it rest."""
        endpoint.outstanding -= 1
        endpoint.failed += 1
        if now >= endpoint.rests_until:  # requests that were in flight together tell of one and the same fall
            endpoint.downs += 1
            endpoint.rests_until = now + min(LONGEST_REST, FIRST_REST * 2 ** (endpoint.downs - 1))

    def others_available(self, endpoint: Endpoint, now: float) -> bool:
        """Whether a request that failed here could go elsewhere at once."""
        return any(other is not endpoint and other.available(now) for other in self.endpoints)

    def forget(self, session: str) -> None:
        """A rollout is over."""
        self._homes.pop(session, None)

    def stats(self) -> list[dict[str, Any]]:
        """What is known of each endpoint."""
        return [
            {
                "url": each.name,
                "served": each.served,
                "failed": each.failed,
                "outstanding": each.outstanding,
                "latency": each.latency,
                "resting": each.downs > 0,
            }
            for each in self.endpoints
        ]

    def _best(self, now: float) -> Endpoint:
        ready = [endpoint for endpoint in self.endpoints if endpoint.available(now)]
        if not ready:  # all are down: the one whose rest ends first may as well be asked
            return min(self.endpoints, key=lambda endpoint: endpoint.rests_until)
        known = [endpoint.latency for endpoint in ready if endpoint.latency is not None]
        usual = min(known, default=1.0)
        return min(ready, key=lambda each: _cost(each, usual))


def _cost(endpoint: Endpoint, usual: float) -> float:
    """How unwelcome one more request is. The square keeps a slow endpoint's share of what is in flight small."""
    slowness = max(endpoint.latency or usual, 1e-6) / max(usual, 1e-6)
    return (endpoint.outstanding + 1) * slowness * slowness
