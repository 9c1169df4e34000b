"""What all servers of a model say together: whether they have room for more rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ludus.model import ServerLoad

#: The queue that keeps a server full while an answer is on its way to us: a share of what runs, and one request.
QUEUE_SHARE, QUEUE_LEAST = 0.05, 1.0

#: Seconds between two questions, and without any answer.
ASK_SECONDS, UNANSWERED_SECONDS = 1.0, 15.0


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """The servers' requests, the mean use of their KV caches, what they preempted since the last report, and how many
    requests wait beyond the queue that keeps them full."""

    running: float
    waiting: float
    surplus: float = 0.0
    cache: float | None = None
    preempted: float = 0.0


class Fleet:
    """Makes a `FleetLoad` of the reports of the servers, one after another."""

    def __init__(self) -> None:
        self._last: list[ServerLoad | None] = []
        self._surplus = 0.0
        self._answered = False

    def take(self, loads: Sequence[ServerLoad | None]) -> FleetLoad | None:
        """The load of the servers that say something; None if none does.

        A request that waits for the next step of its server is no queue, so a queue counts if two reports have it. A
        counter that fell is that of a server that was started again.
        """
        known = [load for load in loads if load is not None]
        self._answered = bool(known)
        if not known:
            self._last, self._surplus = [], 0.0
            return None
        surplus = sum(_surplus(load) for load in known)
        before = self._last if len(self._last) == len(loads) else [None] * len(loads)
        caches = [load.cache for load in known if load.cache is not None]
        report = FleetLoad(
            running=sum(load.running or 0.0 for load in known),
            waiting=sum(load.waiting or 0.0 for load in known),
            surplus=min(surplus, self._surplus),
            cache=fmean(caches) if caches else None,
            preempted=sum(_preempted(was, now) for was, now in zip(before, loads, strict=True)),
        )
        self._last, self._surplus = list(loads), surplus
        return report

    def pause(self, seconds: float) -> float:
        """How long to wait before the next question, after one that took so many seconds."""
        return max(ASK_SECONDS if self._answered else UNANSWERED_SECONDS, 10 * seconds)


def _surplus(load: ServerLoad) -> float:
    return max(0.0, (load.waiting or 0.0) - QUEUE_LEAST - QUEUE_SHARE * (load.running or 0.0))


def _preempted(was: ServerLoad | None, now: ServerLoad | None) -> float:
    if was is None or now is None or was.preempted is None or now.preempted is None:
        return 0.0
    return max(0.0, now.preempted - was.preempted)
