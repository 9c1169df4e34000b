"""Mathematical answers through our process pool, against the same calls in a bare `ProcessPoolExecutor`.

python benchmarks/math_pool.py

Both have one child per processor and all of them busy. They take turns, and the best of each is compared.
"""

import argparse
import asyncio
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor

from ludus.processes import ProcessPool, shared_pool
from ludus.verifiers.math import check_math
from ludus.verifiers.math_child import compare

ANSWERS = [
    (r"\frac{1}{2}", r"Half of it, so the answer is \boxed{0.5}."),
    ("12", r"We add 5 and 7 and get \boxed{12}."),
    (r"x^2+2x+1", r"Expanding gives \boxed{(x+1)^2}."),
    (r"\{1,2,3\}", r"The solutions are \boxed{\{3,1,2\}}."),
    (r"\sqrt{8}", r"Therefore \boxed{2\sqrt{2}}."),
    ("7", r"I believe it is \boxed{8}."),
    (r"[0,1)", r"All of \boxed{[0,1)}."),
    (r"\frac{\pi}{4}", r"An eighth of a turn: \boxed{\pi/4}."),
]


async def ours(calls: list[tuple[str, str]]) -> float:
    async with shared_pool():
        await asyncio.gather(*(check_math(*answer) for answer in ANSWERS * 2))  # import the library in every child
        began = time.perf_counter()
        found = await asyncio.gather(*(check_math(*call) for call in calls))
        seconds = time.perf_counter() - began
    assert sum(each.equal for each in found) == len(calls) * 7 // 8
    return seconds


async def bare(calls: list[tuple[str, str]]) -> float:
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(ProcessPool().workers) as pool:

        def run(expected: str, text: str) -> asyncio.Future[tuple[object, ...]]:
            return loop.run_in_executor(pool, compare, expected, text, False)

        await asyncio.gather(*(run(*answer) for answer in ANSWERS * 2))
        began = time.perf_counter()
        found = await asyncio.gather(*(run(*call) for call in calls))
        seconds = time.perf_counter() - began
    assert sum(bool(each[0]) for each in found) == len(calls) * 7 // 8
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    calls = ANSWERS * (options.calls // len(ANSWERS))
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(options.rounds):
        times["bare"].append(asyncio.run(bare(calls)))
        times["ours"].append(asyncio.run(ours(calls)))
    best = {f"{name}_s": min(each) for name, each in times.items()}
    print(json.dumps({"calls": len(calls), **best, "ratio": best["bare_s"] / best["ours_s"], "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
