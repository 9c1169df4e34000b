"""How many rollouts at once a modelled server bears: `--concurrency auto` against fixed numbers.

    python -m ludus_bench.admission

Rollouts of ten turns grow to about 7,000 tokens on a server with 200,000 tokens of KV cache, for 900 modelled seconds.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from ludus.collection.adaptive import Adaptive
from ludus.collection.fleet_load import Fleet
from ludus.models.server_metrics import read_server_load
from ludus_bench.engine_model import Block, EngineModel, EngineRequest, EngineSpeed

FIXED = (24, 32, 48, 64, 256)


class Second(NamedTuple):
    """What is so after a second."""

    limit: int
    usage: float
    preempted: int


def serve(
    adaptive: Adaptive, engine: EngineModel, seconds: int, *, turns: int = 1, reports: bool = True
) -> list[Second]:
    """Play endless rollouts on an engine with so many calls each."""
    fleet, now, number, random = Fleet(), 0.0, 0, Random(1)
    history: list[Second] = []
    rollouts: dict[EngineRequest, tuple[int, int, float]] = {}

    def ask(rollout: int, turn: int, blocks: list[Block]) -> None:
        asked, output = ((rollout, turn, "asked"), random.randrange(300, 700)), random.randrange(50, 350)
        request = EngineRequest([*blocks, asked], output, (rollout, turn, "answered"))
        rollouts[request] = (rollout, turn, now)
        engine.submit(request)

    for _ in range(seconds):
        for _ in range(10):
            while len(rollouts) < adaptive.limit:
                number += 1
                ask(number, 0, [])
            for request in engine.step():
                rollout, turn, since = rollouts.pop(request)
                adaptive.answered(now - since, len(rollouts) + 1, now)
                if turn + 1 < turns:
                    ask(rollout, turn + 1, [*request.blocks, (request.answer, request.output_tokens)])
                else:
                    adaptive.ended()
            now += engine.slice_seconds
        load = fleet.take([read_server_load(engine.metrics())] if reports else [None])
        if load is not None:
            adaptive.reported(load, len(rollouts), now)
        history.append(Second(adaptive.limit, engine.cache_usage, engine.preempted))
    return history


def main() -> None:
    """Print the answered tokens by the server's speed with prompts, as Markdown."""
    print("| prompt tokens a second | auto with reports | auto without |", *(f"{number} |" for number in FIXED))
    print("| --- | --- | --- |", *("--- |" for _ in FIXED))
    for rate in (6_000, 20_000, 60_000):
        limits = [(Adaptive(), True), (Adaptive(), False)]
        limits += [(Adaptive(number, number, number), False) for number in FIXED]
        engines = []
        for adaptive, reports in limits:
            engine = EngineModel(EngineSpeed(prefill_rate=rate))
            serve(adaptive, engine, 900, turns=10, reports=reports)
            engines.append(engine)
        print(f"| {rate:,} |", *(f"{engine.generated:,} |" for engine in engines))


if __name__ == "__main__":
    main()
