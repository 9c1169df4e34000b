"""Sessions on a server: opened with an id, kept while they are used, and always closed.

A session ends when its client closes it, after `Lease.idle` seconds without a request, `Lease.after_verdict` seconds
after its verdict, or when the server stops. The number of sessions is limited, because some clients never close them.
The id names the worker that holds the session and is hard to guess; nothing else protects the session.
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
    """One rollout's resources while a client uses them. `busy` counts the requests in progress."""

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
    """How many seconds a session may be idle, also after its verdict, and how many sessions may be open."""

    idle: float = 600.0
    after_verdict: float = 30.0
    max_sessions: int = 16384


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
        self._closing: set[asyncio.Task[bool]] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, task: Task | None, seed: int = 0) -> Session:
        """Open a session for a task. Without a task, `open` of the resources is not called."""
        if len(self._open) + self._opening >= self.lease.max_sessions:
            raise Refusal(429, f"{self.lease.max_sessions} sessions are open already: close some, or come back later")
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

    def fresh(self, seed: int = 0, *, seed_known: bool = True) -> Resources:
        """New resources, not opened yet."""
        return self.environment.session(self._shared, seed, seed_known=seed_known)

    async def prepare(self, resources: Resources, task: Task) -> None:
        """Open resources within the deadline, and close them if that fails."""
        work, opening = start_call(resources.open, task)
        try:
            await step("open", self.environment.limits_for(task).open, work)
        except BaseException:
            await self.free(resources, opening)
            raise

    def use(self, name: str) -> Session:
        """The session with this id, as a context manager: it does not expire while it is entered."""
        session = self._open.get(name)
        if session is None:
            raise Refusal(410, "this session is over: it expired, was closed, or its worker died", kind="session_lost")
        return session

    def expire_soon(self, session: Session) -> None:
        """Keep a session only a little longer after its verdict, for a client that asks again."""
        session.expires = monotonic() + self.lease.after_verdict

    async def close(self, name: str, why: str = "closed") -> bool:
        """Close a session, even if a request still uses it. False if there is no session with this id."""
        session = self._open.pop(name, None)
        if session is None:
            return False
        self.ended[why] += 1
        await self.free(session.resources)
        return True

    async def free(self, resources: Resources, opening: asyncio.Future[Any] | None = None) -> None:
        """Close resources within the deadline. A failure is logged, because no client waits for it.

        `opening` is an `open` that may still run on its thread.
        """
        if opening is None and type(resources).close is Resources.close:  # the default close does nothing
            return
        try:
            seconds = self.environment.limits.close
            await step("close", seconds, call_after(opening, seconds / 2, resources.close))
        except Failure as error:
            log.warning("%s: a session did not close: %s", self.environment.name, without_keys(str(error)))

    async def stop(self) -> None:
        """Close all sessions, at most 256 at once."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        names = list(self._open)
        for start in range(0, len(names), 256):
            await asyncio.gather(*(self.close(name, "stopped") for name in names[start : start + 256]))
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _sweep(self) -> None:
        """Close expired sessions, each in its own asyncio task, so that a slow close does not delay others."""
        while True:
            await asyncio.sleep(min(self.lease.idle, self.lease.after_verdict, 5.0) / 2)
            now = monotonic()
            expired = [name for name, session in self._open.items() if session.expires < now and not session.busy]
            for name in expired:
                closing = asyncio.create_task(self.close(name, "expired"))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
