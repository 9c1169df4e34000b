"""Calls in warm child processes, for work that would block the event loop and must be killable.

A thread cannot be killed, and C code (a regular expression, a power of large numbers) can hold the GIL for hours. So
work on text that a model wrote runs in a child process. A child is killed and replaced when its call times out or is
cancelled. A child that crashes fails only its own call. Children start on first use, import a function's module once,
and end with the pool or with this process, even if this process is killed.

Calls are served in order, and each has its timeout, so the wait in the queue is bounded. That wait does not count
against the timeout of the calling step: whether a rollout times out does not depend on other rollouts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from ludus.errors import Failure
from ludus.runtime.deadline import queueing
from ludus.runtime.processes_child import MOST_PARTS, Parts, packed, receive, unpacked, without
from ludus.runtime.threads import in_thread

T = TypeVar("T")
Target = tuple[str, str | None, str]

#: Starts a child, which finds our code in the folder that is its argument until the parent has sent `sys.path`.
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from ludus.runtime.processes_child import main; main()"
_IMPORT_SECONDS = 120.0
_GIGABYTE = 1 << 30


class OutOfTime(TimeoutError):
    """A call used up its `cpu_seconds`. Unlike a timeout, this does not depend on the load of the machine."""


class ProcessPool:
    """Up to `workers` child processes. Each runs one call at a time; further calls queue.

    async with ProcessPool() as pool:
        primes = await pool.run(count_primes, 10_000, timeout=5.0)

    `workers` is by default the number of processors. A child that needs more than `memory` bytes gets a `MemoryError`
    on systems that enforce the limit.
    """

    def __init__(self, workers: int | None = None, *, memory: int | None = 4 * _GIGABYTE) -> None:
        self.workers = workers or processors()
        self._memory = memory
        self._slots = asyncio.Semaphore(self.workers)
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._dying: list[subprocess.Popen[bytes]] = []
        self._closed = False

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        timeout: float = 60.0,  # noqa: ASYNC109
        cpu_seconds: float | None = None,
    ) -> T:
        """Call a module's top-level function in a child, and return its result or raise its exception.

        After `timeout` seconds the child is killed and `TimeoutError` raised, after `cpu_seconds` of processor time
        `OutOfTime`. Waiting for a free child and importing the module do not count, neither here nor against the limit
        of the step that waits. If the child dies, a `Failure` of kind `crash` is raised.
        """
        target = _target(function)
        with queueing():
            await self._slots.acquire()
        try:
            return await self._run(target, args, timeout, cpu_seconds)  # type: ignore[no-any-return]
        finally:
            self._slots.release()

    async def _run(self, target: Target, args: Any, seconds: float, cpu_seconds: float | None) -> Any:
        if self._closed:
            raise RuntimeError("the process pool is closed")
        child = self._ready()
        self._busy.add(child)
        try:
            if target not in child.loaded:
                what = f"the import of {target[0]}"
                with queueing():
                    _result(await child.ask(what, [packed((target, 0.0))], _IMPORT_SECONDS))
                child.loaded.add(target)
            reply = await child.ask(target[2], [packed((target, cpu_seconds or 0.0)), packed(args)], seconds)
        except EOFError:
            raise await self._died(child, target[2], cpu_seconds) from None
        finally:
            self._busy.discard(child)
            if child.reply is None and not self._closed:
                self._idle.append(child)
            else:
                self._end(child)
        return _result(reply)

    async def close(self) -> None:
        """Kill all children. Calls that still run fail."""
        self._closed = True
        for child in [*self._idle, *self._busy]:
            self._end(child)
        self._idle.clear()
        while self._dying:
            await in_thread(self._dying.pop().wait)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _ready(self) -> _Child:
        """A living idle child, or a new child."""
        while self._idle:
            child = self._idle.pop()
            if not child.gone:
                return child
            self._end(child)
        self._dying = [process for process in self._dying if process.poll() is None]
        child = _Child()
        child.send(packed((sys.path, self._memory)))
        return child

    def _end(self, child: _Child) -> None:
        child.kill()
        self._dying.append(child.process)

    async def _died(self, child: _Child, name: str, cpu_seconds: float | None) -> Exception:
        child.kill()
        code = await in_thread(child.process.wait)
        if self._closed:
            return Failure("crash", f"the process pool was closed while {name} ran")
        if code == -signal.SIGPROF and cpu_seconds:
            return OutOfTime(f"{name} was stopped after {cpu_seconds:g} s of processor time")
        return Failure("crash", f"the process that ran {name} ended with {exit_words(code)}")


class _Child:
    """One child process and the parent's end of the socket to it. `reply` is set while a call waits for its reply."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.socket, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parents[2])],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self.socket.close()
            raise
        finally:
            theirs.close()
        self.socket.setblocking(False)
        self.loop.add_reader(self.socket, self._readable)
        self.gone = False
        self.loaded: set[Target] = set()
        self.reply: asyncio.Future[Parts] | None = None
        self._unsent: list[memoryview] = []
        self._received: Parts = []
        self._receiving = receive(self._received)
        self._missing = next(self._receiving)

    async def ask(self, what: str, request: list[list[memoryview]], seconds: float) -> Parts:
        """Send packed messages and return the reply, still packed. Raises `EOFError` if the child ends."""
        reply: asyncio.Future[Parts] = self.loop.create_future()
        self.reply = reply
        for message in request:
            self.send(message)
        timer = self.loop.call_later(seconds, _expire, reply, f"{what} was stopped after {seconds:g} s")
        try:
            answer = await reply
        finally:
            timer.cancel()
        self.reply = None
        return answer

    def send(self, message: list[memoryview]) -> None:
        """Send a packed message: as much as the socket takes now, the rest when it is writable again."""
        self._unsent += message
        self._writable()

    def kill(self) -> None:
        """Kill the process and everything it started, and close the socket."""
        if self.socket.fileno() >= 0:
            self.loop.remove_reader(self.socket)
            self.loop.remove_writer(self.socket)
            self.socket.close()
        if self.process.returncode is None:  # not waited for yet, so no other process can have its pid
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(EOFError())

    def _writable(self) -> None:
        try:
            sent = self.socket.sendmsg(self._unsent[:MOST_PARTS])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost()
            return
        self._unsent = without(self._unsent, sent)
        if self._unsent:
            self.loop.add_writer(self.socket, self._writable)
        else:
            self.loop.remove_writer(self.socket)

    def _readable(self) -> None:
        """Read until the socket is empty: usually a whole reply."""
        while True:
            try:
                count = self.socket.recv_into(self._missing)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self._lost()
                return
            self._missing = self._missing[count:]
            if not self._missing:
                self._part_is_complete()

    def _part_is_complete(self) -> None:
        missing = next(self._receiving, None)
        if missing is not None:
            self._missing = missing
            return
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(self._received)
        self._received = []
        self._receiving = receive(self._received)
        self._missing = next(self._receiving)

    def _lost(self) -> None:
        self.gone = True
        self.loop.remove_reader(self.socket)
        self.loop.remove_writer(self.socket)
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(EOFError())


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[ProcessPool, int]] = WeakKeyDictionary()


@asynccontextmanager
async def shared_pool() -> AsyncIterator[ProcessPool]:
    """The pool of this event loop: the first user opens it, the last user closes it."""
    loop = asyncio.get_running_loop()
    pool, users = _pools.get(loop) or (ProcessPool(), 0)
    _pools[loop] = (pool, users + 1)
    try:
        yield pool
    finally:
        pool, users = _pools[loop]
        if users > 1:
            _pools[loop] = (pool, users - 1)
        else:
            del _pools[loop]
            await pool.close()


async def in_process(
    function: Callable[..., T],
    *args: Any,
    timeout: float = 60.0,  # noqa: ASYNC109
    cpu_seconds: float | None = None,
) -> T:
    """`ProcessPool.run` in the shared pool. Its children stay warm while another `shared_pool()` is entered."""
    async with shared_pool() as pool:
        return await pool.run(function, *args, timeout=timeout, cpu_seconds=cpu_seconds)


def exit_words(code: int) -> str:
    """The exit code of a process in words: `exit code 1`, `signal 9 (Killed)`."""
    return f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"


def _target(function: Callable[..., Any]) -> Target:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name:
        what = f"{module}.{name}" if module and name else repr(function)
        raise TypeError(f"{what} cannot run in another process: define it at the top of an importable module")
    return module, getattr(sys.modules.get(module), "__file__", None), name


def _result(reply: Parts) -> Any:
    succeeded, value = unpacked(reply)
    if succeeded:
        return value
    raise value


def _expire(reply: asyncio.Future[Parts], message: str) -> None:
    if not reply.done():
        reply.set_exception(TimeoutError(message))


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
