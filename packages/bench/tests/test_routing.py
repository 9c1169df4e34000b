"""Rollouts over several servers with caches of their own: who gets them, and what happens when a server drains."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from ludus_bench.engine_model import EngineModel, EngineSpeed
from ludus_bench.engine_server import EngineServer

from ludus import Collection
from ludus.collection.collector import Collector
from ludus.collection.options import Options
from ludus.models import open_model
from ludus.models.pool import Endpoint, Pool


class RoundRobin(Pool):
    _next = 0

    def take(self, session: str | None, now: float) -> Endpoint:
        self._next = (self._next + 1) % len(self.endpoints)
        self.endpoints[self._next].outstanding += 1
        return self.endpoints[self._next]


async def collect(
    pool: type[Pool] = Pool, *, drains_after: int = -1, **options: Any
) -> tuple[Collection, list[EngineServer]]:
    """Collect from three servers. The first one drains after so many recorded rollouts."""
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(3):
            server = EngineServer(EngineModel(EngineSpeed(prefill_rate=50_000)), turns=2)
            servers.append(await stack.enter_async_context(server.serving(100.0)))
        urls = [server.url for server in servers]
        model: Any = open_model({"type": "openai", "model": "m", "base_url": urls, "api": "responses"})
        model._transport.pool = pool(urls)
        collection = Collection("example_session_state_mgmt", Options(model=model, **options))

        async def sink(rollout: Any) -> None:
            servers[0].drains |= len(collection._rollouts) == drains_after
            await collection.add_rollout(rollout)

        collector: Collector = collection.prepare(sink=sink)
        await collection.run(collector)
        return collection, servers


def hit_rate(servers: list[EngineServer]) -> float:
    engines = [server.engine for server in servers]
    return sum(engine.hits for engine in engines) / sum(engine.queries for engine in engines)


def test_rollouts_that_keep_their_server_hit_its_prefix_cache() -> None:
    _, kept = asyncio.run(collect(repeats=6, concurrency=10))
    _, spread = asyncio.run(collect(RoundRobin, repeats=6, concurrency=10))
    assert hit_rate(kept) > hit_rate(spread) + 0.1


def test_a_server_that_drains_loses_its_rollouts_to_the_others() -> None:
    collection, servers = asyncio.run(collect(drains_after=8, repeats=6, concurrency=12))
    endpoints = collection.metrics["model"]["endpoints"]
    assert collection.metrics["counts"]["failed"] == 0
    assert endpoints[0]["moved"] > 0
    assert any(f"rollouts that moved from {servers[0].url}" in warning for warning in collection.warnings)


def test_auto_concurrency_is_reached_by_the_reports_of_the_servers() -> None:
    collection, servers = asyncio.run(collect(repeats=12, concurrency="auto"))
    assert collection.metrics["counts"]["failed"] == 0
    assert sum(server.engine.preempted for server in servers) == 0
