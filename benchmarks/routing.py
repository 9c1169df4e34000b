"""Which server gets a rollout: time to finish and prefix cache hits of four ways to choose, on modelled servers.

    python benchmarks/routing.py                 a simulation: 16 servers, 4 worker processes
    python benchmarks/routing.py --http          `ludus.collect` with stub servers over HTTP, and the same simulated
    python benchmarks/routing.py --docs docs/scale.md     both, written into the page

Servers batch continuously and have a KV cache with a prefix cache (`ludus_bench.engine_model`). Each worker process has
its own pool and knows nothing of the others, as with `--workers`, Ray and shards.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ludus_bench.engine_model import Block, EngineModel, EngineRequest, EngineSpeed
from ludus_bench.engine_server import EngineServer

from ludus import Collection
from ludus.collection.options import Options
from ludus.models import open_model
from ludus.models.pool import Endpoint, Pool

BEGIN, END = "<!-- routing: begin -->", "<!-- routing: end -->"


class RoundRobin(Pool):
    """Each request goes to the next server."""

    _next = -1

    def take(self, session: str | None, now: float) -> Endpoint:
        self._next = (self._next + 1) % len(self.endpoints)
        self.endpoints[self._next].outstanding += 1
        return self.endpoints[self._next]


class LeastLoaded(Pool):
    """Each request goes to the server with the fewest outstanding requests of this process."""

    def take(self, session: str | None, now: float) -> Endpoint:
        return super().take(None, now)


class BySession(Pool):
    """A rollout keeps its server; a new one goes to the one with the fewest outstanding requests."""

    def _best(self, session: str | None, now: float) -> Endpoint:
        return super()._best(None, now)


POLICIES: dict[str, type[Pool]] = {
    "round robin": RoundRobin,
    "least loaded": LeastLoaded,
    "a rollout keeps its server": BySession,
    "session and task (Ludus)": Pool,
}


@dataclass(frozen=True)
class Job:
    """What the simulation plays."""

    servers: int = 16
    workers: int = 4
    in_flight: int = 384
    tasks: int = 256
    repeats: int = 16
    turns: int = 6
    shared_tokens: int = 0  #: of the prompts of all tasks
    prompt_tokens: int = 4000
    turn_tokens: int = 400
    output_tokens: int = 150
    answer_tokens: int | None = None  #: of an answer in the prompts after it, if not as many as it has
    tool_seconds: float = 1.0

    def pause(self, random: Random) -> float:
        """Seconds between an answer and the next request of its rollout."""
        return random.expovariate(1 / self.tool_seconds) if self.tool_seconds else 0.0


#: What `collect` plays: a row has three items, two of which all rows share, and a turn has two tool outputs.
COLLECTED = Job(4, 1, 32, 8, 16, 7, 1000, 500, 1000, 100, answer_tokens=500, tool_seconds=0.0)
#: The servers of `collect`, and those of the simulated cluster.
SMALL, LARGE = (
    EngineSpeed(cache_tokens=100_000, prefill_rate=8000),
    EngineSpeed(cache_tokens=160_000, prefill_rate=8000),
)


@dataclass
class Outcome:
    """What a way to choose achieved."""

    policy: str
    seconds: float
    hits: float
    preempted: int

    def row(self, best: float) -> str:
        """A line of the table."""
        cells = (f"{self.seconds:,.0f} s", f"{self.seconds / best:.2f}", f"{self.hits:.0%}", f"{self.preempted:,}")
        return f"| {self.policy} | {' | '.join(cells)} |"


def simulate(policy: str, job: Job, speed: EngineSpeed) -> Outcome:
    """Play all rollouts in simulated time."""
    engines = {f"server-{number}": EngineModel(speed) for number in range(job.servers)}
    pools = [POLICIES[policy](list(engines)) for _ in range(job.workers)]
    random, now = Random(1), 0.0
    rollouts = iter([f"task{task}-{repeat}" for task in range(job.tasks) for repeat in range(job.repeats)])
    playing: dict[EngineRequest, tuple[str, int, int, Endpoint, float]] = {}
    due: list[tuple[float, str, int, int, list[Block]]] = []  # the next turns, after their tools

    def ask(rollout: str, worker: int, turn: int, blocks: list[Block]) -> None:
        output = random.randrange(job.output_tokens // 2, job.output_tokens * 3 // 2)
        request = EngineRequest(blocks, output, (rollout, turn, "answer"))
        endpoint = pools[worker].take(rollout, now)
        playing[request] = (rollout, worker, turn, endpoint, now)
        engines[endpoint.url].submit(request)

    def begin(worker: int) -> None:
        if (rollout := next(rollouts, None)) is not None:
            ask(rollout, worker, 0, [("all", job.shared_tokens), (rollout.partition("-")[0], job.prompt_tokens)])

    for number in range(job.in_flight):
        begin(number % job.workers)
    while playing or due:
        for engine in engines.values():
            for request in engine.step():
                rollout, worker, turn, endpoint, since = playing.pop(request)
                pools[worker].answered(endpoint, now - since)
                if turn + 1 < job.turns:
                    answer = (request.answer, job.answer_tokens or request.output_tokens)
                    blocks = [*request.blocks, answer, ((rollout, turn), job.turn_tokens)]
                    heapq.heappush(due, (now + job.pause(random), rollout, worker, turn + 1, blocks))
                else:
                    pools[worker].forget(rollout)
                    begin(worker)
        now += 0.1
        while due and due[0][0] <= now:
            ask(*heapq.heappop(due)[1:])
    return _outcome(policy, now, list(engines.values()))


async def collect(policy: str, speed: EngineSpeed, faster: float = 20.0) -> Outcome:
    """Collect with the real client and collector, from stub servers over HTTP."""
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(4):
            server = EngineServer(EngineModel(speed), turns=6, item_tokens=500, output_tokens=100)
            servers.append(await stack.enter_async_context(server.serving(faster)))
        urls = [server.url for server in servers]
        model: Any = open_model({"type": "openai", "model": "m", "base_url": urls, "api": "responses"})
        model._transport.pool = POLICIES[policy](urls)
        options = Options(model=model, repeats=16, concurrency=32)
        collection = Collection("example_session_state_mgmt", options)
        await collection.run(collection.prepare(sink=collection.add_rollout))
        seconds = max(server.engine.seconds for server in servers)
        return _outcome(policy, seconds, [server.engine for server in servers])


def _outcome(policy: str, seconds: float, engines: list[EngineModel]) -> Outcome:
    hits, queries = sum(engine.hits for engine in engines), sum(engine.queries for engine in engines)
    return Outcome(policy, seconds, hits / queries, sum(engine.preempted for engine in engines))


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as Markdown."""
    head = "| who gets a request | time to finish | to the best | prompt tokens from the cache | preempted |"
    best = min(outcome.seconds for outcome in outcomes)
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *(outcome.row(best) for outcome in outcomes)])


def beside(collected: list[Outcome], simulated: list[Outcome]) -> str:
    """What was collected, and the simulation of the same job."""
    head = "| who gets a request | time to finish | simulated | error | from the cache | simulated |"
    rows = [
        f"| {real.policy} | {real.seconds:,.0f} s | {model.seconds:,.0f} s | {model.seconds / real.seconds - 1:+.0%} | "
        f"{real.hits:.0%} | {model.hits:.0%} |"
        for real, model in zip(collected, simulated, strict=True)
    ]
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", action="store_true", help="collect over HTTP from stub servers")
    parser.add_argument("--docs", type=Path, help="write both tables into this page")
    options = parser.parse_args()
    parts = {}
    if options.http or options.docs:
        collected = [asyncio.run(collect(policy, SMALL)) for policy in POLICIES]
        parts["Collected, and the same job simulated"] = beside(
            collected, [simulate(policy, COLLECTED, SMALL) for policy in POLICIES]
        )
    if not options.http:
        parts["A cluster, simulated"] = table([simulate(policy, Job(), LARGE) for policy in POLICIES])
    text = "\n\n".join(f"{title}:\n\n{rows}" for title, rows in parts.items())
    print(text)
    if options.docs:
        page = options.docs.read_text()
        before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
        options.docs.write_text(f"{before}\n\n{text}\n\n{after}")


if __name__ == "__main__":
    main()
