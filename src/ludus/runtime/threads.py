"""Plain functions off the event loop.

The standard library's pool has few threads and joins them at exit, so one tool that sleeps delays the others and
one that hangs keeps the process alive. These threads are daemons, made when no idle one is left: a hung call costs
a thread, not the run.
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
_late: set[asyncio.Future[Any]] = set()


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a blocking function on a daemon thread. Cancelling stops the wait, not the function."""
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
        except RuntimeError:  # the loop is gone: nobody waits for the answer any more
            pass

    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="ludus-worker", daemon=True).start()
    inbox.put(work)
    result = await future
    return await result if inspect.isawaitable(result) else result  # a decorator may hide that it is `async def`


def awaited(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """Call a function that may be `async def` (on the loop) or a plain `def` (on a thread). Await what comes back."""
    if not is_async(function):
        return in_thread(function, *args, **kwargs)
    try:
        return function(*args, **kwargs)  # type: ignore[no-any-return]
    except TypeError as error:  # the function does not take these arguments: raised where its result is awaited
        return _raising(error)


async def _raising(error: Exception) -> Any:
    raise error


def start_call(function: Callable[..., Any], *args: Any) -> tuple[Awaitable[Any], asyncio.Future[Any] | None]:
    """Like `awaited`, with what goes on by itself when nobody waits any more: a thread cannot be stopped."""
    work = awaited(function, *args)
    if is_async(function):
        return work, None
    going_on = asyncio.ensure_future(work)
    return asyncio.shield(going_on), going_on


async def call_after(going_on: asyncio.Future[Any] | None, seconds: float, function: Callable[[], Any]) -> None:
    """Call a function when something that goes on by itself has ended.

    What takes longer than that is not waited for: the function is called then, and again when it has ended after all.
    """
    if going_on is not None and not going_on.done():
        await asyncio.wait([going_on], timeout=seconds)
        if not going_on.done():
            going_on.add_done_callback(functools.partial(_call_soon, function))
    await awaited(function)


async def late_calls(seconds: float) -> None:
    """Wait for what is being called late, but no longer than that."""
    if here := [calling for calling in _late if calling.get_loop() is asyncio.get_running_loop()]:
        await asyncio.wait(here, timeout=seconds)


def _call_soon(function: Callable[[], Any], ended: asyncio.Future[Any]) -> None:
    if ended.cancelled():  # the loop is about to close, and it has not ended
        return
    calling = asyncio.ensure_future(awaited(function))
    _late.add(calling)
    calling.add_done_callback(_forget)


def _forget(calling: asyncio.Future[Any]) -> None:
    _late.discard(calling)
    if not calling.cancelled():
        calling.exception()  # there is nobody left to tell it to


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function is `async def`. The flag of its code answers at once for nearly every function."""
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
    else:  # a future refuses to carry the one, and the others would end whoever waits here, with the whole run
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
