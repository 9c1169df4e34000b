"""Requests on the event loop, batches on a thread.

What is asked within a moment is handed to `work` together; one batch runs at a time, and what is asked meanwhile waits
for the next. The loop is never blocked, whoever waits may be cancelled, and between two batches
everything can be paused.
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


class Ask:
    """A request on its way. `left` says that nobody waits for its answer any more."""

    __slots__ = ("answer", "left", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.left = False
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def settle(self, result: Response | Exception) -> None:
        """Give the answer, from any thread."""
        _settle(self.answer, result)


class Batches:
    """Collects up to `most` requests for `wait` seconds. `work` blocks, settles each of them, and raises nothing."""

    def __init__(self, work: Callable[[list[Ask]], None], most: int, wait: float) -> None:
        self._work, self._most, self._wait = work, most, wait
        self._guard, self._pauses, self._running = threading.Lock(), 0, False
        self._serving: asyncio.Task[None] | None = None
        self._waiting: deque[Ask] = deque()
        self._news: list[asyncio.Future[None]] = []

    def start(self) -> None:
        """Take requests on the event loop that is running."""
        self._waiting.clear()
        self._arrived = asyncio.Event()
        # A thread of its own: torch gives every thread that it meets helpers of theirs.
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=_work_off, args=(self._inbox,), name="ludus-batches", daemon=True).start()
        self._serving = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Take no more, and wait until the batch that runs has noticed. Requests without an answer fail."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait({serving})
            self._inbox.put(None)

    async def answer(self, request: Request) -> Response:
        """The answer to a request, out of the next batch. If it is cancelled, its batch goes on without it."""
        if self._serving is None:
            raise RuntimeError("this model answers only between start() and stop(), or inside `async with`")
        ask = Ask(request)
        self._waiting.append(ask)
        self._arrived.set()
        try:
            return await ask.answer
        finally:
            ask.left = True

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """While no batch runs and none starts. It may be awaited on any event loop."""
        with self._guard:
            self._pauses += 1
        try:
            await self._until(lambda: not self._running)
            yield
        finally:
            with self._guard:
                self._pauses -= 1
            self._wake()

    async def _serve(self) -> None:
        batch: list[Ask] = []
        try:
            while True:
                await self._arrived.wait()
                if len(self._waiting) < self._most:
                    await asyncio.sleep(self._wait)
                await self._until(self._begin)
                batch = self._take()
                await self._run(batch)
        finally:
            for ask in (*batch, *self._waiting):
                ask.settle(Failure("refused", "the model has stopped"))

    def _begin(self) -> bool:
        self._running = not self._pauses
        return self._running

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Wait until something is so. It is asked under the guard, so it may also make it so."""
        while True:
            with self._guard:
                if ready():
                    return
                news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._news.append(news)
            await news

    def _wake(self) -> None:
        with self._guard:
            waiting, self._news = self._news, []
        for news in waiting:
            _settle(news, None)

    def _take(self) -> list[Ask]:
        batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        if not self._waiting:
            self._arrived.clear()
        return [ask for ask in batch if not ask.left]

    async def _run(self, batch: list[Ask]) -> None:
        """Work on the thread, and wait until it is through, also where this is cancelled."""
        through: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                if batch:
                    self._work(batch)
            finally:
                self._running = False
                self._wake()
                _settle(through, None)

        self._inbox.put(work)
        try:
            await asyncio.shield(through)
        except asyncio.CancelledError:
            for ask in batch:
                ask.left = True
            await asyncio.wait({through})
            raise


def _work_off(inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := inbox.get()) is not None:
        work()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result or its exception, from any thread, if somebody still waits for it."""

    def settle() -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    with suppress(RuntimeError):  # the loop is gone
        future.get_loop().call_soon_threadsafe(settle)
