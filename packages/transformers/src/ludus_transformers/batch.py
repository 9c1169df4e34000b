"""A queue of requests on the event loop, which a thread works off.

When requests arrive, `work` starts on the thread and takes them as it has room, until none waits. The event loop is
never blocked, requests can be cancelled, and the queue can be paused: then `work` is given no more and ends.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import Response


class BatchedRequest:
    """A queued or running request. `cancelled` says that its caller no longer waits for the answer."""

    __slots__ = ("answer", "cancelled", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.cancelled = False
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def settle(self, result: Response | Exception) -> None:
        """Set the answer or the exception, from any thread."""
        _settle(self.answer, result)


#: Takes at most this number of waiting requests, without blocking.
Take = Callable[[int], list[BatchedRequest]]


class Batches:
    """Starts `work` `wait` seconds after a request arrived. `work` blocks, settles what it takes and raises nothing."""

    def __init__(self, work: Callable[[Take], None], size: int, wait: float) -> None:
        self._work, self._size, self._wait = work, size, wait
        self._lock, self._pauses, self._running = threading.Lock(), 0, False
        self._serving: asyncio.Task[None] | None = None
        self._waiting: deque[BatchedRequest] = deque()
        self._taken: list[BatchedRequest] = []
        self._wakeups: list[asyncio.Future[None]] = []

    def start(self) -> None:
        """Accept requests on the running event loop."""
        self._waiting.clear()
        self._arrived = asyncio.Event()
        # A dedicated thread: torch starts a pool of worker threads for every thread that calls it.
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=_run_jobs, args=(self._jobs,), name="ludus-batches", daemon=True).start()
        self._serving = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Accept no more requests, cancel the running ones and wait for the thread. Unanswered requests fail."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait({serving})
            self._jobs.put(None)

    async def answer(self, request: Request) -> Response:
        """Answer a request beside others. If it is cancelled, the others continue without it."""
        if self._serving is None:
            raise RuntimeError("this model answers only between start() and stop(), or inside `async with`")
        queued = BatchedRequest(request)
        self._waiting.append(queued)
        self._arrived.set()
        try:
            return await queued.answer
        finally:
            queued.cancelled = True

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """A context in which nothing runs or starts. It works on any event loop."""
        with self._lock:
            self._pauses += 1
        try:
            await self._until(lambda: not self._running)
            yield
        finally:
            with self._lock:
                self._pauses -= 1
            self._wake()

    async def _serve(self) -> None:
        try:
            while True:
                await self._arrived.wait()
                if len(self._waiting) < self._size:
                    await asyncio.sleep(self._wait)
                await self._until(self._begin)
                await self._run()
                if not self._waiting:
                    self._arrived.clear()
        finally:
            for queued in (*self._taken, *self._waiting):
                queued.settle(Failure("refused", "the model has stopped"))
            self._taken = []

    def _begin(self) -> bool:
        self._running = not self._pauses
        return self._running

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()` is true. It is called under the lock, so it may also change the state."""
        while True:
            with self._lock:
                if ready():
                    return
                wakeup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._wakeups.append(wakeup)
            await wakeup

    def _wake(self) -> None:
        with self._lock:
            wakeups, self._wakeups = self._wakeups, []
        for wakeup in wakeups:
            _settle(wakeup, None)

    def _take(self, most: int) -> list[BatchedRequest]:
        """Called on the thread. Gives nothing while the queue is paused or stopped."""
        taken: list[BatchedRequest] = []
        while self._waiting and len(taken) < most and not self._pauses and self._serving is not None:
            queued = self._waiting.popleft()
            if not queued.cancelled:
                taken.append(queued)
        if taken:
            self._taken = [queued for queued in self._taken if not queued.answer.done()] + taken
        return taken

    async def _run(self) -> None:
        """Run `work` on the thread and wait until it ends, even if this coroutine is cancelled."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                self._work(self._take)
            finally:
                self._running = False
                self._wake()
                _settle(finished, None)

        self._jobs.put(work)
        try:
            await asyncio.shield(finished)
        except asyncio.CancelledError:
            for queued in self._taken:
                queued.cancelled = True
            await asyncio.wait({finished})
            raise


def _run_jobs(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := jobs.get()) is not None:
        work()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    """Set the result or the exception of a future, from any thread, unless it is done."""

    def settle() -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    with suppress(RuntimeError):  # the event loop is closed
        future.get_loop().call_soon_threadsafe(settle)
