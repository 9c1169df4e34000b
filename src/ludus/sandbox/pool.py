"""A pool of warm sandboxes, so that opening one costs no start (`benchmarks/sandboxes.py`).

A returned sandbox is reset: its processes end, its files are removed. If the reset is not certain, or a program passed
a limit in it, the sandbox is thrown away. At most a few programs run, and a few sandboxes start, at the same time, so
that a program's time limit measures the program and not its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from ludus.runtime.deadline import queueing
from ludus.runtime.processes import processors
from ludus.sandbox.delegate import Delegate
from ludus.sandbox.protocol import ExecResult, Program, Sandbox, SandboxProvider, SandboxSpec
from ludus.sandbox.supervised import SupervisedSandbox

#: A sandbox is replaced after this many programs, whatever happened in it.
_USES = 2_000

#: Idle sandboxes that are kept for all specs together.
_IDLE = 64


class SandboxPool(SandboxProvider):
    """A provider that keeps sandboxes of another provider warm."""

    def __init__(self, provider: SandboxProvider, warm: int | None = None) -> None:
        cores = processors()
        self.provider = provider
        self.name = provider.name
        self.isolates = provider.isolates
        self.lacks = provider.lacks
        self._warm = cores if warm is None else warm
        self._slots = asyncio.Semaphore(2 * cores)
        self._idle: dict[SandboxSpec, list[SupervisedSandbox]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox of this spec: a warm one if there is one. Specs that differ in their files share sandboxes."""
        lease = _Lease(self, await self._take(replace(spec, files={})), spec)
        try:
            await lease.write_files(spec.files)
        except BaseException:
            await lease.close()
            raise
        return lease

    async def check(self, spec: SandboxSpec) -> None:
        """Raise `SandboxError` if no sandbox of a spec could open."""
        await self.provider.check(spec)

    async def _take(self, spec: SandboxSpec) -> Sandbox:
        idle = self._idle.get(spec)
        if idle is None:
            self._idle[spec] = idle = []
            for _ in range(self._warm - 1):
                self._start(spec)
        if (sandbox := _ready(idle)) is not None:
            return sandbox
        async with self.turn():  # hundreds that start at once would delay the programs of all others
            return _ready(idle) or await self.provider.open(spec)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The right to keep a core busy. Waiting for it does not count against a step's deadline."""
        with queueing():
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Close every sandbox."""
        self._closed = True
        for task in list(self._starting):
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await self.provider.close()

    def _start(self, spec: SandboxSpec) -> None:
        task = asyncio.create_task(self._start_one(spec))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start_one(self, spec: SandboxSpec) -> None:
        with suppress(Exception):  # an error that matters is raised where a sandbox is opened
            async with self._slots:  # no step waits for it, so no clock stands still
                sandbox = await self.provider.open(spec)
            await self._give_back(sandbox)

    async def _give_back(self, sandbox: Sandbox) -> None:
        """Keep a sandbox for the next user if it can be made as new, or close it."""
        if isinstance(sandbox, SupervisedSandbox) and not self._closed and sandbox.uses < _USES:
            idle = self._idle.get(sandbox.spec)
            if idle is not None and sum(map(len, self._idle.values())) < _IDLE and await sandbox.reset():
                idle.append(sandbox)
                return
        await sandbox.close()


def _ready(idle: list[SupervisedSandbox]) -> SupervisedSandbox | None:
    """Take a sandbox that still runs, if there is one."""
    while idle:
        sandbox = idle.pop()
        if not sandbox.gone:
            return sandbox
    return None


class _Lease(Delegate):
    """One use of a sandbox. After `close` it raises, so that its owner cannot reach the next user's sandbox."""

    def __init__(self, pool: SandboxPool, sandbox: Sandbox, spec: SandboxSpec) -> None:
        self.spec = spec
        self._pool = pool
        self._sandbox: Sandbox | None = sandbox
        self._routed = False

    async def _target(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the sandbox is closed")
        return self._sandbox

    async def route(self, port: int) -> str:
        """Let programs reach a port of this machine. From then on they do not queue: they wait for that port."""
        url = await super().route(port)
        self._routed = True
        return url

    async def close_routes(self) -> None:
        """Close what `route` opened."""
        self._routed = False
        await super().close_routes()

    async def run(self, program: Program) -> ExecResult:
        """Run a program when its turn comes."""
        if self._routed:
            return await super().run(program)
        async with self._pool.turn():
            return await super().run(program)

    async def close(self) -> None:
        """Give the sandbox back."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await asyncio.shield(self._pool._give_back(sandbox))
