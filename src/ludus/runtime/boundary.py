"""Deadlines for the steps of one task, at the price of one timer.

A timer per step would be a large part of what a short rollout costs. Here one timer is armed when the task starts; it
is moved only for a step that must end sooner, and when it fires too early it looks again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

_NEVER = float("inf")
_AGAIN = 1.0


def is_cancelled() -> bool:
    """Whether somebody wants the running task to end. A CancelledError without that came out of what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def in_time(seconds: float, work: Awaitable[T]) -> T:
    """Await something that must end within `seconds`. It is cancelled again as long as it keeps that to itself, and
    whatever it returns then, this raises `TimeoutError`."""
    deadline = Deadline(seconds, seconds)
    deadline.start()
    try:
        result = await work
    except asyncio.CancelledError:
        if deadline.took_back_cancel():
            raise TimeoutError(f"no end after {seconds:g} s") from None
        raise
    finally:
        late = deadline.leave()
        deadline.dispose()
    if late:
        raise TimeoutError(f"no end after {seconds:g} s")
    return result


class Deadline:
    """The deadline of a whole job and of the step it is in, for a task that may do many jobs one after another.

    deadline = Deadline(whole=3600, shortest=30)
    deadline.start()
    deadline.enter(perf_counter(), 60)
    try:
        await step()
    except asyncio.CancelledError:
        if not deadline.took_back_cancel():
            raise
        ...  # the step took too long
    finally:
        deadline.leave()
    """

    __slots__ = ("_armed", "_end", "_expired", "_loop", "_shortest", "_task", "_timer", "_until", "_whole")

    def __init__(self, whole: float, shortest: float) -> None:
        self._whole, self._shortest = whole, min(whole, shortest)
        self._expired = 0  # how often it has cancelled the step
        self._armed = self._end = self._until = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Begin to count, in the running task: the same one for every job."""
        if self._task is None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        now = perf_counter()
        self._end = self._until = now + self._whole
        if self._armed > now + self._shortest:
            self._arm(now, now + self._shortest)

    def stop(self) -> None:
        """End the job. A timer that is still to fire will find nothing to do, unless another job was started."""
        self._end = self._until = _NEVER
        self.took_back_cancel()

    def dispose(self) -> None:
        """End the last job: no timer is left behind."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def passed(self) -> bool:
        """Whether the whole task's time is up."""
        return perf_counter() >= self._end

    def enter(self, now: float, seconds: float) -> None:
        """Begin a step that must end within `seconds`; when it does not, the task is cancelled."""
        until = now + seconds
        if until < self._end:
            self._until = until
            if until < self._armed:
                self._arm(now, until)

    def leave(self) -> bool:
        """End the step. True where it outlived its deadline, because it kept our cancellation to itself."""
        self._until = self._end
        if not self._expired:
            return False
        self.took_back_cancel()
        return True

    def took_back_cancel(self) -> bool:
        """Whether a CancelledError was this deadline's own, and nobody else wants the task cancelled."""
        if not self._expired or self._task is None:
            return False
        left = 0
        for _ in range(self._expired):
            left = self._task.uncancel()
        self._expired = 0
        return left == 0

    def _arm(self, now: float, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = when
        self._timer = self._loop.call_later(when - now, self._fire)

    def _fire(self) -> None:
        now = perf_counter()
        self._timer, self._armed = None, _NEVER  # nothing is armed: the next step arms it again
        if now < self._until:
            if self._until is not _NEVER:
                self._arm(now, self._until)
            return
        self._expired += 1
        if self._task is not None:
            self._task.cancel()
        self._arm(now, now + _AGAIN)  # for a step that takes it for an error of its own and goes on
