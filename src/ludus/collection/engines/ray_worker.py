"""One worker on a Ray cluster, as the collection sees it: its actor, and the bytes that travel in calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ludus.collection.engines.connection import WorkerConnection
from ludus.collection.engines.frames import READ_AHEAD, Frames
from ludus.collection.engines.ray_actor import Taken
from ludus.runtime.ray_cluster import error_words

#: A resource that only the head of a cluster has.
_HEAD = "node:__internal_head__"

#: Ray's words for an actor that died with its node.
_NODE_DIED = re.compile(r"\bnode (has )?died\b", re.IGNORECASE)


class _TakenFrames(Frames):
    """The frames of an actor. Backpressure: bytes are taken only while a reader waits."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.wanted = asyncio.Event()

    async def __anext__(self) -> tuple[Any, memoryview]:
        self.wanted.set()
        try:
            return await super().__anext__()
        finally:
            self.wanted.clear()


class RayWorker(WorkerConnection):
    """A worker in an actor. Ray never restarts the actor: its leases end with it, and another worker gets new leases. A
    node that Ray has given up may play on for a while; its results are ignored.

    `killed` are the nodes that were killed on purpose: their orphans still answer."""

    def __init__(self, number: int, ray: Any, actor: Any, killed: set[str]) -> None:
        super().__init__(number)
        self._ray, self._actor, self._killed = ray, actor, killed
        self._take = actor.take.options(concurrency_group="take")
        self._give = actor.give.options(concurrency_group="give")
        self._reader = asyncio.StreamReader(limit=READ_AHEAD)
        self.frames = self._frames = _TakenFrames(self._reader)
        self._died: str | None = None
        self._reports: asyncio.Queue[bytes] = asyncio.Queue()
        self._taking = asyncio.create_task(self._take_all())

    async def reports(self) -> AsyncIterator[bytes]:
        """What the watchdog of the worker reports while the worker's event loop is blocked."""
        while True:
            for line in (await self._reports.get()).splitlines():
                yield line

    async def wait(self) -> str | None:
        """Wait for the end of the worker. Returns how it died; None if it ended by itself."""
        await asyncio.wait({self._taking})
        self.kill()
        return self._died

    def kill(self) -> None:
        """End the actor, and with it the worker."""
        if not self.ended and not self._taking.done():
            self._died = "a kill"
        self._taking.cancel()
        with suppress(Exception):  # Ray itself may be gone
            self._ray.kill(self._actor)

    async def kill_machine(self) -> bool:
        """Kill the node of the actor, unless it is the head of the cluster or the node of the collection."""
        nodes = await asyncio.to_thread(self._ray.nodes)
        spared = {node["NodeID"] for node in nodes if _HEAD in node["Resources"]}
        spared.add(self._ray.get_runtime_context().get_node_id())
        try:
            node = await self._actor.node.remote()
        except self._ray.exceptions.RayError:  # it died meanwhile: `_take_all` reports that
            return False
        if node in spared | self._killed:
            return False
        self._killed.add(node)
        self._actor.kill_node.remote()
        return True

    def abandon(self) -> None:
        """Take back the request for an actor that is not ready yet."""
        self.ended = True
        self._reader.feed_eof()
        self.kill()

    def _send(self, data: bytes) -> None:
        self._give.remote(data)

    async def _take_all(self) -> None:
        wanted, errors = self._frames.wanted, self._ray.exceptions
        try:
            while True:
                await wanted.wait()
                taken = Taken(*await self._take.remote())
                self._reader.feed_data(taken.frames)
                if taken.reports:
                    self._reports.put_nowait(taken.reports)
                if taken.ended:
                    self._died = taken.died
                    return
        except (errors.RayActorError, errors.NodeDiedError, errors.ObjectLostError) as error:
            self._died, self.lost_with_machine = _death(error)
        except errors.RayError as error:  # such as a runtime environment that cannot be made
            self._died = error_words(error)
        finally:
            self._reader.feed_eof()


def _death(error: Exception) -> tuple[str, bool]:
    """How an actor died, and whether its node did."""
    unavailable = "unavailable" in type(error).__name__.lower()
    if unavailable or getattr(error, "preempted", False) or _NODE_DIED.search(str(error)):
        return "its node", True
    return error_words(error), False
