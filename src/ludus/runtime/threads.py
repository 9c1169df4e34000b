"""Plain functions on daemon threads, off the event loop.

asyncio's default pool has few threads and joins them at exit, so a slow tool delays other tools, and a hung tool keeps
the process alive. Here a call without an idle thread gets a new daemon thread: a hung call costs one thread, and delays
neither other calls nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any

_idle: list[queue.SimpleQueue[Callable[[], None]]] = []
_IDLE_LIMIT = 64
_late_calls: set[asyncio.Future[Any]] = set()


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a blocking function on a daemon thread. A cancel stops the wait, not the function."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result, error = context.run(function, *args, **kwargs), None
        except BaseException as raised:
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:  # the loop is closed, so nothing waits for the result
            pass

    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="ludus-worker", daemon=True).start()
    inbox.put(work)
    result = await future
    return await result if inspect.isawaitable(result) else result  # a decorated `async def` may look like a `def`


def awaited(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """Call an `async def` function on the loop, or a plain `def` on a thread. Returns an awaitable of the result."""
    if not is_async(function):
        return in_thread(function, *args, **kwargs)
    try:
        return function(*args, **kwargs)  # type: ignore[no-any-return]
    except TypeError as error:  # wrong arguments: raise where the result is awaited
        return _raising(error)


async def _raising(error: Exception) -> Any:
    raise error


def start_call(function: Callable[..., Any], *args: Any) -> tuple[Awaitable[Any], asyncio.Future[Any] | None]:
    """Like `awaited`. For a plain `def` also returns the future of its thread: a cancel does not stop a thread."""
    if is_async(function):
        return awaited(function, *args), None
    running = asyncio.ensure_future(in_thread(function, *args))
    running.add_done_callback(_forget)  # after a cancel nothing awaits it
    return asyncio.shield(running), running


async def call_after(running: asyncio.Future[Any] | None, seconds: float, function: Callable[[], Any]) -> None:
    """Call a function when a thread has ended, or after `seconds`, and then again when the thread ends: a late call."""
    if running is not None and not running.done():
        await asyncio.wait([running], timeout=seconds)
        if not running.done():
            running.add_done_callback(functools.partial(_call_late, function))
    await awaited(function)


async def late_calls(seconds: float) -> None:
    """Wait up to `seconds` for the late calls of this event loop that have begun."""
    if here := [call for call in _late_calls if call.get_loop() is asyncio.get_running_loop()]:
        await asyncio.wait(here, timeout=seconds)


def _call_late(function: Callable[[], Any], thread: asyncio.Future[Any]) -> None:
    if thread.cancelled():  # the loop is closing while the thread still runs
        return
    call = asyncio.ensure_future(awaited(function))
    _late_calls.add(call)
    call.add_done_callback(_forget)


def _forget(call: asyncio.Future[Any]) -> None:
    _late_calls.discard(call)
    if not call.cancelled():
        call.exception()  # read, so that Python does not log it as never retrieved


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function is `async def`. The flag of its code is the fast path."""
    try:
        if function.__code__.co_flags & inspect.CO_COROUTINE:
            return True
    except AttributeError:  # a partial, a class, a builtin
        pass
    return inspect.iscoroutinefunction(function)


def _serve(inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        inbox.get()()
        if len(_idle) >= _IDLE_LIMIT:
            return
        _idle.append(inbox)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # a future refuses StopIteration; SystemExit and KeyboardInterrupt would end the whole run
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
