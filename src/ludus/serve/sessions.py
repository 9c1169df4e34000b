"""Sessions are leases: opened with an id, kept while they are used, and always closed.

A lease ends when its client closes it, when nobody used it for a while, when its verdict was given and nobody asked
again, or when the server stops. There is a cap, so that clients who never close cannot fill the memory. The id says
which worker holds the session and is hard to guess; nothing else protects it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self

from ludus.environment import Environment
from ludus.errors import Failure
from ludus.http.messages import Refusal
from ludus.resources import Resources
from ludus.runtime.boundary import step
from ludus.runtime.keys import without_keys
from ludus.runtime.threads import call_after, start_call
from ludus.task import Task

log = logging.getLogger("ludus.serve")


@dataclass(slots=True)
class Session:
    """One rollout's resources while a client uses them. `busy` counts the requests that do so right now."""

    id: str
    resources: Resources
    task: Task | None
    idle: float
    expires: float
    busy: int = 0

    def __enter__(self) -> Self:
        self.busy += 1
        return self

    def __exit__(self, *exc: object) -> None:
        self.busy -= 1
        self.expires = max(self.expires, monotonic() + self.idle)


@dataclass(slots=True)
class Lease:
    """How long a session may be left alone, and how many there may be."""

    idle: float = 600.0
    after_verdict: float = 30.0
    most: int = 16384


class Sessions:
    """The sessions of one environment in this process."""

    def __init__(self, environment: Environment, shared: Any, lease: Lease | None = None, worker: int = 0) -> None:
        self.environment = environment
        self.lease = lease or Lease()
        self.ended: Counter[str] = Counter()
        self.opened = 0
        self._shared = shared
        self._worker = worker
        self._open: dict[str, Session] = {}
        self._opening = 0
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, task: Task | None, seed: int = 0) -> Session:
        """Open a session for a task; without a task, only where the environment has nothing to prepare."""
        if len(self._open) + self._opening >= self.lease.most:
            raise Refusal(429, f"{self.lease.most} sessions are open already: close some, or come back later")
        self._opening += 1
        try:
            resources = self.fresh(seed)
            if task is not None:
                await self.prepare(resources, task)
        finally:
            self._opening -= 1
        name, idle = f"{self._worker}.{secrets.token_urlsafe(18)}", self.lease.idle
        session = Session(name, resources, task, idle, monotonic() + idle)
        self._open[session.id] = session
        self.opened += 1
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        return session

    def fresh(self, seed: int = 0) -> Resources:
        """Resources that are not open yet."""
        return self.environment.session(self._shared, seed)

    async def prepare(self, resources: Resources, task: Task) -> None:
        """Open resources within their deadline, and close them if that fails."""
        work, opening = start_call(resources.open, task)
        try:
            await step("open", self.environment.limits.open, work)
        except BaseException:
            await self.free(resources, opening)
            raise

    def use(self, name: str) -> Session:
        """The session of that name, to be entered: it does not expire while it is in use."""
        session = self._open.get(name)
        if session is None:
            raise Refusal(410, "this session is over: it expired, was closed, or its worker died", kind="session_lost")
        return session

    def linger(self, session: Session) -> None:
        """A verdict was given: the session is kept only for a client that asks once more."""
        session.expires = monotonic() + self.lease.after_verdict

    async def close(self, name: str, why: str = "closed") -> bool:
        """Close a session, whoever is still using it. False when there is none of that name."""
        session = self._open.pop(name, None)
        if session is None:
            return False
        self.ended[why] += 1
        await self.free(session.resources)
        return True

    async def free(self, resources: Resources, opening: asyncio.Future[Any] | None = None) -> None:
        """Close resources within their deadline; a failure is logged, since nobody is left who could act on it.

        `opening` is an `open` that may still be going on.
        """
        try:
            seconds = self.environment.limits.close
            await step("close", seconds, call_after(opening, seconds / 2, resources.close))
        except Failure as error:
            log.warning("%s: a session did not close: %s", self.environment.name, without_keys(str(error)))

    async def stop(self) -> None:
        """Close all sessions, at most some at once."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        names = list(self._open)
        for start in range(0, len(names), 256):
            await asyncio.gather(*(self.close(name, "stopped") for name in names[start : start + 256]))
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _sweep(self) -> None:
        """Close what has expired. A slow close holds up nobody."""
        while True:
            await asyncio.sleep(min(self.lease.idle, self.lease.after_verdict, 5.0) / 2)
            now = monotonic()
            for session in [each for each in self._open.values() if each.expires < now and not each.busy]:
                closing = asyncio.create_task(self._expire(session.id))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _expire(self, name: str) -> None:
        await self.close(name, "expired")
