"""`ludus.collect`, `ludus.collect_async` and `ludus.stream`: a whole collection as one call."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from typing import Any, TypeVar, Unpack

from ludus.collection.collection import Collection, Environments, Watcher
from ludus.collection.collector import Collector
from ludus.collection.options import CollectArguments, Options, collect_options
from ludus.rollout import Rollout
from ludus.runtime.running import run_to_end

F = TypeVar("F", bound=Callable[..., Any])


def _shows_options(function: F) -> F:
    """List the options in the function's signature, which `help` and notebooks show."""
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(option.name, kind, default=option.default, annotation=option.type)
        for option in fields(Options)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    return function


@_shows_options
def collect(
    environment: Environments = None, *, watch: Watcher | None = None, **options: Unpack[CollectArguments]
) -> Collection:
    """Collect rollouts. Returns when all are done. A list of environments makes one collection of all.

        result = ludus.collect("mcqa", model="local", limit=3)
        print(result)

    Where an event loop runs already, as in a notebook, the loop is blocked meanwhile: await `collect_async` there.
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
    collection = Collection(environment, collect_options(options))
    return collection, collection.prepare(sink=collection.add_rollout if collection.files is None else None)


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
    collection = Collection(environment, collect_options(options))
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
