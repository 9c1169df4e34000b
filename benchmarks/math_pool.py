"""Mathematical answers through our process pool, against the same calls in a bare `ProcessPoolExecutor`.

python benchmarks/math_pool.py

Both have one busy child per processor. They alternate, and the best run of each is compared.
"""

import argparse
import asyncio
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor

from ludus.graders.math import check_math
from ludus.graders.math_child import compare
from ludus.runtime.processes import ProcessPool, shared_pool


def answers(count: int) -> list[tuple[str, str]]:
    """Expected answers and texts without duplicates, because the library caches comparisons."""
    found = []
    for n in range(2, 2 + count // 8):
        found += [
            (rf"\frac{{{n}}}{{{2 * n + 1}}}", rf"It is \boxed{{{n}/{2 * n + 1}}}."),
            (str(n + 12), rf"We add {n} and 12 and get \boxed{{{n + 12}}}."),
            (f"x^2+{2 * n}x+{n * n}", rf"So the square is \boxed{{(x+{n})^2}}."),
            (rf"\{{{n},{n + 1},{n + 2}\}}", rf"The solutions are \boxed{{\{{{n + 2},{n},{n + 1}\}}}}."),
            (rf"\sqrt{{{4 * n}}}", rf"Therefore \boxed{{2\sqrt{{{n}}}}}."),
            (str(n), rf"I believe it is \boxed{{{n + 1}}}."),
            (f"[{n},{2 * n})", rf"All of \boxed{{[{n},{2 * n})}}."),
            (rf"\frac{{\pi}}{{{n}}}", rf"A part of half a turn: \boxed{{\pi/{n}}}."),
        ]
    return found


WARM_UP = answers(16)


async def ours(calls: list[tuple[str, str]]) -> float:
    async with shared_pool():
        await asyncio.gather(*(check_math(*answer) for answer in WARM_UP))  # import the library in every child
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

        await asyncio.gather(*(run(*answer) for answer in WARM_UP))
        began = time.perf_counter()
        found = await asyncio.gather(*(run(*call) for call in calls))
        seconds = time.perf_counter() - began
    assert sum(bool(each[0]) for each in found) == len(calls) * 7 // 8
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    calls = answers(options.calls)
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(options.rounds):
        times["bare"].append(asyncio.run(bare(calls)))
        times["ours"].append(asyncio.run(ours(calls)))
    best = {f"{name}_s": min(each) for name, each in times.items()}
    print(json.dumps({"calls": len(calls), **best, "ratio": best["bare_s"] / best["ours_s"], "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
