"""What saving each turn costs: rollouts of 20 turns, with and without it.

A few percent are less than what two processes differ by. One process therefore plays many short collections in pairs,
one of each kind in changing order, so that both meet the same machine. Printed are the median of the pairs' ratios and
the ratio of all CPU time.

    python benchmarks/checkpoints.py --pairs 40
"""

import argparse
import gc
import json
import statistics
from argparse import Namespace

import product
from measure import stub_server

from ludus.runtime import running

TURNS = 20


async def measure(url: str, pairs: int, rollouts: int) -> dict[str, float]:
    """The CPU seconds that saving turns adds, as a part of those without it."""
    options = {"url": url, "agent": None, "rollouts": rollouts, "concurrency": 32, "turns": TURNS, "tool_bytes": 512}
    spent: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs + 1):
        for saves in (True, False) if number % 2 else (False, True):
            gc.collect()
            found = await product.run(Namespace(**options, tokens=False, checkpoint=saves))
            if number:  # the first pair warms up
                spent[saves].append(found["cpu_s"])
    ratios = [saved / plain for saved, plain in zip(spent[True], spent[False], strict=True)]
    total = sum(spent[True]) / sum(spent[False]) - 1
    return {"pairs": pairs, "median_added": statistics.median(ratios) - 1, "added_in_all": total}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what saving each turn costs.")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--rollouts", type=int, default=200, help="of each collection")
    options = parser.parse_args()
    with stub_server(turns=TURNS) as url:
        print(json.dumps(running.run(measure(url, options.pairs, options.rollouts))))


if __name__ == "__main__":
    main()
