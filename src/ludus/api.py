"""`ludus.collect`, `ludus.collect_async` and `ludus.stream`: a whole collection as one call."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, Unpack

from ludus.collection.collection import Collection, Environments, Watcher
from ludus.collection.collector import Collector
from ludus.collection.options import CollectArguments, Options
from ludus.rollout import Rollout
from ludus.runtime.running import run_to_end

F = TypeVar("F", bound=Callable[..., Any])


def _shows_options(function: F) -> F:
    """List the options in the function's signature and its docstring, which `help` and notebooks show."""
    signature, keyword = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    parameters = [value for value in signature.parameters.values() if value.kind is not value.VAR_KEYWORD]
    lines, title = [inspect.cleandoc(function.__doc__ or "")], ""
    for part, spec, text in Options.all():
        parameters.append(inspect.Parameter(spec.name, keyword, default=spec.default, annotation=spec.type))
        if part.title != title:
            title = part.title
            lines.append(f"\n{title}:\n")
        lines.append(f"    {spec.name}: {text.help}")
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__doc__ = "\n".join(lines)
    return function


@_shows_options
def collect(
    environment: Environments = None, *, watch: Watcher | None = None, **options: Unpack[CollectArguments]
) -> Collection:
    """Collect rollouts. Returns when all are done.

        result = ludus.collect("mcqa", model="local", limit=3)
        print(result)
        result[0].reward, len(result), result.rollouts, result.to_pandas()

    `environment` is the name of a built-in environment, a folder, a class of resources, an `Environment`, or a list of
    these for one collection of all; leave it out if the rows name theirs. `watch` is a coroutine function that gets the
    collector and runs beside it. Where an event loop runs already, as in a notebook, the loop is blocked meanwhile:
    await `collect_async` there.
    """
    collection, collector = _prepared(environment, options)
    if _loop_runs():
        advice = "this blocks the event loop that runs here: write `await ludus.collect_async(...)`"
        warnings.warn(advice, RuntimeWarning, stacklevel=2)
    run_to_end(collection.run(collector, watch))
    return collection


@_shows_options
async def collect_async(
    environment: Environments = None, *, watch: Watcher | None = None, **options: Unpack[CollectArguments]
) -> Collection:
    """Collect rollouts on the running event loop, as `collect` does without one.

    result = await ludus.collect_async("mcqa", model="local", limit=3)
    """
    collection, collector = _prepared(environment, options)
    await collection.run(collector, watch)
    return collection


def _prepared(environment: Environments, options: CollectArguments) -> tuple[Collection, Collector]:
    collection = Collection(environment, Options(**options))
    sink = collection.add_rollout if collection.files is None else None
    return collection, collection.prepare(sink=sink)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@_shows_options
async def stream(environment: Environments = None, **options: Unpack[CollectArguments]) -> AsyncIterator[Rollout]:
    """Yield rollouts when they end, failed ones included. A slow reader slows the collection down.

    async for rollout in ludus.stream("mcqa", model="local"):
        print(rollout.reward)
    """
    collection = Collection(environment, Options(**options))
    queue: asyncio.Queue[Rollout | None] = asyncio.Queue(maxsize=1)
    collector = collection.prepare(sink=queue.put)

    async def produce() -> None:
        try:
            await collection.run(collector)
        finally:
            await queue.put(None)

    producing = asyncio.create_task(produce())
    try:
        while (rollout := await queue.get()) is not None:
            yield rollout
        await producing
    finally:
        producing.cancel()
        while not producing.done():
            while not queue.empty():
                queue.get_nowait()
            await asyncio.wait({producing}, timeout=0.05)
