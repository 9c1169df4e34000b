"""Requests on the event loop, batches on a thread.

What is asked within a moment is handed to `work` together; one batch runs at a time, and what is asked meanwhile waits
for the next. The loop is never blocked, whoever waits may be cancelled, and between two batches everything can be paused.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ludus.model import Request
from ludus.outcome import Failure
from ludus.response import Response
from ludus.threads import in_thread

_POLL = 0.005  # a trainer may wait on another event loop than the one that generates, so both look again and again


class Ask:
    """A request on its way. `left` says that nobody waits for its answer any more."""

    __slots__ = ("answer", "left", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.left = False
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def settle(self, result: Response | Exception) -> None:
        """Give the answer, from any thread."""
        with suppress(RuntimeError):  # the loop is gone: nobody waits for the answer any more
            self.answer.get_loop().call_soon_threadsafe(self._settle, result)

    def _settle(self, result: Response | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class Batches:
    """Collects up to `most` requests for `wait` seconds. `work` blocks, settles each of them, and raises nothing."""

    def __init__(self, work: Callable[[list[Ask]], None], most: int, wait: float) -> None:
        self._work, self._most, self._wait = work, most, wait
        self._guard, self._pauses, self._running = threading.Lock(), 0, False
        self._serving: asyncio.Task[None] | None = None
        self._waiting: deque[Ask] = deque()

    def start(self) -> None:
        """Take requests on the event loop that is running."""
        self._waiting.clear()
        self._arrived = asyncio.Event()
        self._serving = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Take no more, and wait until the batch that runs has noticed. Requests without an answer fail."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait({serving})

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
        """While no batch runs and none starts."""
        with self._guard:
            self._pauses += 1
        try:
            while self._running:
                await asyncio.sleep(_POLL)
            yield
        finally:
            with self._guard:
                self._pauses -= 1

    async def _serve(self) -> None:
        batch: list[Ask] = []
        try:
            while True:
                await self._arrived.wait()
                if len(self._waiting) < self._most:
                    await asyncio.sleep(self._wait)
                while not self._begin():
                    await asyncio.sleep(_POLL)
                try:
                    batch = self._take()
                    await self._run(batch)
                finally:
                    self._running = False
        finally:
            for ask in (*batch, *self._waiting):
                ask.settle(Failure("refused", "the model has stopped"))

    def _begin(self) -> bool:
        with self._guard:
            self._running = not self._pauses
            return self._running

    def _take(self) -> list[Ask]:
        batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        if not self._waiting:
            self._arrived.clear()
        return [ask for ask in batch if not ask.left]

    async def _run(self, batch: list[Ask]) -> None:
        """Work on a thread. It must be through before anything else may happen, also where this is cancelled."""
        if not batch:
            return
        work = asyncio.ensure_future(in_thread(self._work, batch))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            for ask in batch:
                ask.left = True
            await asyncio.wait({work})
            raise
