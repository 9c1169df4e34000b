"""The lag of the event loop while 64 hostile answers are verified, each until its timeout of 5 seconds.

python benchmarks/loop_lag.py

The answer opens thousands of formulas and closes none. Nothing in it is large, and the library's patterns need minutes,
so the pool's children are busy all the time: with two children the run takes 160 s. A task that sleeps for a
millisecond at a time records how late it wakes up.
"""

import argparse
import asyncio
import contextlib
import json
import time

from ludus.graders.math import check_math
from ludus.runtime.processes import shared_pool

HOSTILE = "\\[\n" * 30_000
EVERY_S = 0.001


async def record_lags(lags: list[float]) -> None:
    while True:
        wanted = time.perf_counter() + EVERY_S
        await asyncio.sleep(EVERY_S)
        lags.append(max(0.0, time.perf_counter() - wanted))


@contextlib.asynccontextmanager
async def watched(lags: list[float]):
    """Record lags while the block runs."""
    recording = asyncio.create_task(record_lags(lags))
    try:
        yield
    finally:
        recording.cancel()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def measure(calls: int, seconds: float) -> dict[str, float]:
    idle: list[float] = []
    busy: list[float] = []
    async with shared_pool() as pool:
        await check_math("1", r"\boxed{1}")  # import the library before the measurement
        async with watched(idle):
            await asyncio.sleep(1.0)
        began = time.perf_counter()
        async with watched(busy):
            found = await asyncio.gather(*(check_math("1", HOSTILE, seconds=seconds) for _ in range(calls)))
        wall = time.perf_counter() - began
        workers = pool.workers
    assert all(each.equal is None for each in found), "the answer was not hostile enough"
    return {
        "calls": calls,
        "workers": workers,
        "wall_s": wall,
        "idle_p99_s": percentile(idle, 0.99),
        "p50_s": percentile(busy, 0.5),
        "p99_s": percentile(busy, 0.99),
        "max_s": max(busy),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.calls, options.seconds))))


if __name__ == "__main__":
    main()
