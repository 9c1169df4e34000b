"""The deadline of a task's job and of the step it is in; a step that waits in a queue stops the clock.

A timer per step would be a tenth of the cost of a short rollout (benchmarks/bench.py). A `Deadline` arms one timer
when a task starts, moves it only for a step that must end sooner, and arms it again if it fires too early.

A step that queues for a shared resource, such as the process pool, must not time out because of other rollouts:
`queueing()` stops the clocks of the running step and of its rollout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from ludus.errors import Failure, Stage

NEVER = float("inf")

#: Seconds after which a step that swallowed a cancel is cancelled again.
_CANCEL_AGAIN = 1.0


class Deadline:
    """The deadline of a whole job and of the step it is in, for a task that may do many jobs one after another.

    deadline = Deadline(whole=3600, shortest=30)
    deadline.start()
    await step("open", 60, resources.open(task), deadline=deadline)
    deadline.stop()
    """

    __slots__ = (
        "_armed",
        "_end",
        "_expired",
        "_loop",
        "_paused",
        "_pauses",
        "_shortest",
        "_step",
        "_task",
        "_timer",
        "_until",
        "outer",
        "whole",
    )

    def __init__(self, whole: float, shortest: float) -> None:
        self.whole, self._shortest = whole, min(whole, shortest)
        self._expired = 0  # cancels sent to the step
        self._armed = self._end = self._until = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._step = self._pauses = 0  # number of the running step, and its open pauses
        self._paused = 0.0  # when the first open pause began
        self.outer: Deadline | None = None  #: the deadline of the step in which this one was started

    def start(self) -> None:
        """Begin a job, in the running task: the same task for every job."""
        if self._task is None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if (running := _running.get()) is not self:
            self.outer = running
            _running.set(self)
        now = perf_counter()
        self._end = self._until = now + self.whole
        if self._armed > now + self._shortest:
            self._arm(now, now + self._shortest)

    def stop(self) -> None:
        """End the job. The timer stays armed for the next job; if none comes, it fires and does nothing."""
        self._end = NEVER
        self.leave()
        self._forget()

    def timeout(self, stage: Stage, seconds: float, name: str = "") -> Failure:
        """The failure of a step that this deadline ended: its own limit expired, or that of the whole job."""
        if perf_counter() >= self._end:
            return Failure("timeout", f"the rollout timed out after {self.whole:g} s", stage=stage)
        return Failure("timeout", f"{name or stage} timed out after {seconds:g} s", stage=stage)

    def pause(self) -> int:
        """Stop the clock until `resume` is called with the returned number, or until the step ends."""
        if not self._pauses:
            self._paused = perf_counter()
        self._pauses += 1
        return self._step

    def resume(self, pause: int) -> None:
        """Let the clock go on when the last pause of the step is over. A pause of an earlier step does nothing."""
        if pause != self._step:
            return
        self._pauses -= 1
        if not self._pauses:
            self._shift(perf_counter())

    def _forget(self) -> None:
        if _running.get() is self:
            _running.set(self.outer)

    def _shift(self, now: float) -> None:
        waited = now - self._paused
        self._until += waited
        self._end += waited

    def enter(self, now: float, seconds: float) -> None:
        """Begin a step. The task is cancelled if the step does not end within `seconds`."""
        until = now + seconds
        if until < self._end:
            self._until = until
            if until < self._armed:
                self._arm(now, until)

    def leave(self, last: bool = False) -> bool:
        """End the step and take back this deadline's cancels. True if there were any: the step was late.

        `last` means that no step follows: the timer is cancelled.
        """
        if self._pauses:  # the step ended while a task that it started still waits
            self._shift(perf_counter())
            self._pauses = 0
        self._step += 1
        if last:
            self._end = NEVER
            self._forget()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._until = self._end
        if not self._expired:
            return False
        for _ in range(self._expired):
            assert self._task is not None
            self._task.uncancel()
        self._expired = 0
        return True

    def _arm(self, now: float, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = when
        self._timer = self._loop.call_later(when - now, self._fire)

    def _fire(self) -> None:
        now = perf_counter()
        self._timer, self._armed = None, NEVER
        until = self._until + (now - self._paused if self._pauses else 0.0)
        if now < until:
            if until != NEVER:
                self._arm(now, until)
            return
        self._expired += 1
        if self._task is not None:
            self._task.cancel()
        self._arm(now, now + _CANCEL_AGAIN)


#: The deadline of the running task, or of the task that started it.
_running: ContextVar[Deadline | None] = ContextVar("running deadline", default=None)


@contextmanager
def queueing() -> Iterator[None]:
    """Stop the clocks of the running step while it waits in a queue. The queue must have its own timeout.

    with queueing():
        await slots.acquire()
    """
    clocks = Clocks()
    clocks.pause()
    try:
        yield
    finally:
        clocks.resume()


class Clocks:
    """The clocks of the step that runs here, for code elsewhere that knows when the step waits in a queue."""

    __slots__ = ("_innermost", "_paused")

    def __init__(self) -> None:
        self._innermost = _running.get()
        self._paused: list[tuple[Deadline, int]] = []

    def pause(self) -> None:
        """Stop the clocks. Does nothing if they stand still."""
        deadline = None if self._paused else self._innermost
        while deadline is not None:
            self._paused.append((deadline, deadline.pause()))
            deadline = deadline.outer

    def resume(self) -> None:
        """Let the clocks go on, if the step has not ended meanwhile."""
        for deadline, pause in self._paused:
            deadline.resume(pause)
        self._paused = []
