"""The boundary: the one place where code that may hang, raise or exit gets a deadline, and its errors a stage.

Environments, agents, tools, models and verifiers are code that we did not write, or call servers that we do not run. A
`step` awaits such code. It returns the result, or raises a `Failure` with a stage, a kind and the first cause. Only
interrupts (Ctrl-C, a cancel of the running task) pass through unchanged. A step that swallows the cancel of its
deadline is cancelled again, and counts as timed out whatever it returns.

A step runs under the `Deadline` of its task (runtime/deadline.py). Without one it arms a timer of its own when it first
suspends; many steps never do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from time import perf_counter
from types import CoroutineType, coroutine
from typing import Any, NoReturn, TypeVar

from ludus.errors import Failure, Interrupt, Stage
from ludus.runtime.deadline import NEVER, Deadline

T = TypeVar("T")

#: Exceptions that pass through every step unchanged. Any other exception of foreign code fails its own rollout only,
#: also `SystemExit` and the panic of a Rust extension.
INTERRUPTS = (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, Interrupt)


async def step(
    stage: Stage,
    seconds: float,
    work: Awaitable[T],
    name: str = "",
    deadline: Deadline | None = None,
    timings: dict[str, float] | None = None,
    began: float | None = None,
    steps: list[tuple[str, float, float]] | None = None,
) -> T:
    """Await one step under its deadline, add its time to `timings`, and raise a `Failure` for whatever it raises.

        verdict = await step("verify", 120.0, resources.verify(task, response))

    `name` is the step's name in a timeout message. `deadline` is that of the running task; without it the step gets its
    own. `began` is the time now, if the caller knows it. `steps` gets the stage, the start of the step, and its
    seconds.
    """
    own = deadline is None
    if began is None:
        began = perf_counter()
    if deadline is None:
        deadline = Deadline(NEVER, NEVER)
        deadline.start()
        work = _timed(deadline, began, seconds, work)
    else:
        deadline.enter(began, seconds)
    try:
        result = await work
    except BaseException as error:
        _raise(failure_of(error, stage, seconds, name, deadline, own), error)
    finally:
        if timings is not None:
            taken = perf_counter() - began
            timings[stage] = timings.get(stage, 0.0) + taken
            if steps is not None:
                steps.append((stage, began, taken))
    if deadline.leave(own):
        raise deadline.timeout(stage, seconds, name)
    return result


def failure_of(
    error: BaseException, stage: Stage, seconds: float, name: str, deadline: Deadline, last: bool = False
) -> Failure:
    """The failure of a step that raised `error` under a deadline: a timeout if the deadline had cancelled the step.

    An interrupt is raised again: it belongs to the caller.
    """
    late = deadline.leave(last)  # takes back the deadline's own cancels; a caller's cancel remains
    if is_interrupt(error):
        raise error
    return deadline.timeout(stage, seconds, name) if late else Failure.of(error, stage)


async def in_time(seconds: float, work: Awaitable[T]) -> T:
    """Await work that must end within `seconds`, or raise `TimeoutError`. The work's own exceptions pass through.

    The work must not wait in a queue (`queueing`): a `step` may.
    """
    inner = _iterator(work)
    try:
        waits_for = inner.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    deadline = Deadline(NEVER, NEVER)
    deadline.start()
    deadline.enter(perf_counter(), seconds)
    try:
        result = await _rest(inner, waits_for)
    except asyncio.CancelledError as error:
        late = deadline.leave(last=True)
        if is_interrupt(error) or not late:
            raise
        raise TimeoutError(f"timed out after {seconds:g} s") from None
    except BaseException:
        deadline.leave(last=True)
        raise
    if deadline.leave(last=True):
        raise TimeoutError(f"timed out after {seconds:g} s")
    return result


@coroutine
def _timed(deadline: Deadline, began: float, seconds: float, work: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await work that began at `began`, and arm its deadline when it suspends for the first time.

    While work runs without suspending, no timer could fire.
    """
    inner = _iterator(work)
    try:
        waits_for = inner.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    now = perf_counter()
    deadline.enter(now, began + seconds - now)
    return (yield from _rest(inner, waits_for))


def _iterator(work: Awaitable[T]) -> Generator[Any, Any, T]:
    """The iterator that `await` drives. Only coroutines and futures are sure to have `send` and `throw`."""
    if not isinstance(work, CoroutineType | asyncio.Future):
        work = _awaiting(work)
    return work.__await__()


async def _awaiting(work: Awaitable[T]) -> T:
    return await work


@coroutine
def _rest(inner: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with an awaitable that has suspended to wait for something."""
    while True:
        resume: Callable[[Any], Any] = inner.send
        try:
            value = yield waits_for
        except BaseException as error:
            value, resume = error, inner.throw
        try:
            waits_for = resume(value)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def finish(work: Awaitable[None]) -> None:
    """Await work to its end, even if the running task is cancelled meanwhile; the cancel is raised afterwards."""
    running = asyncio.ensure_future(work)
    cancel: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError as error:
            cancel = error
        except Exception:
            break
    if cancel is not None:
        if not running.cancelled():
            running.exception()  # read, so that Python does not log it as never retrieved
        raise cancel
    running.result()


async def together(works: Sequence[Awaitable[T]]) -> list[T]:
    """Await several coroutines at once. If one fails, the others are cancelled and awaited: none outlives the call.

    `asyncio.TaskGroup` passes on only the first cancel of a deadline, and some tools swallow it.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    pending, raised = set(tasks), None
    while pending:
        try:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            failures = [task.exception() for task in done if not task.cancelled()]
            raised = raised or next((failure for failure in failures if failure is not None), None)
        except asyncio.CancelledError as error:
            raised, pending = error, {task for task in pending if not task.done()}
        if raised is not None:
            for task in pending:
                task.cancel()
    if raised is not None:
        for task in tasks:
            if not task.cancelled():
                task.exception()  # read, so that Python does not log it as never retrieved
        raise raised
    return [task.result() for task in tasks]


def reraise(error: BaseException, stage: Stage) -> NoReturn:
    """Raise the failure of a step that raised `error`. An interrupt is raised again: it belongs to the caller.

    try:
        session = kind(config)
    except BaseException as error:
        reraise(error, "open")
    """
    _raise(attribute(error, stage), error)


def attribute(error: BaseException, stage: Stage) -> Failure:
    """The failure of a step that raised `error`. An interrupt is raised again."""
    if is_interrupt(error):
        raise error
    return Failure.of(error, stage)


def _raise(failure: Failure, error: BaseException) -> NoReturn:
    """Raise a failure with its cause. A failure that is raised again keeps its cause."""
    raise failure from (failure.__cause__ if failure is error else error)


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception must pass through every boundary: Ctrl-C, or a cancel of the running task.

    If nothing cancelled the task, the awaited code itself raised CancelledError: that is a failure of the code.
    """
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    return isinstance(error, INTERRUPTS)


def is_cancelled() -> bool:
    """Whether the running task was cancelled and has not ended yet."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return True
    return task is not None and task.cancelling() > 0
