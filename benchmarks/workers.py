"""`--workers 2` against one process, and the memory of the parent over many rollouts.

python benchmarks/workers.py speed --burn-ms 10      # verdicts that need the processor
python benchmarks/workers.py speed                   # an instant model
python benchmarks/workers.py memory
python benchmarks/workers.py ray --burn-ms 2          # two Ray actors against --workers 2, once started
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import rss_bytes, run_json

from ludus.collection.collection import Collection
from ludus.collection.collector import Collector
from ludus.collection.options import Options

HERE = Path(__file__).parent
ENVIRONMENT = HERE / "workers_env"
QUESTION = "How many words does this question have? " + "word " * 60


def collection(folder: str, rows: int, burn_ms: float, **options: Any) -> Collection:
    """A collection of a scripted model that answers at once."""
    path, script = Path(folder) / "rows.jsonl", Path(folder) / "script.yaml"
    script.write_text("- The answer is 72.\n")
    with path.open("w") as file:
        for number in range(rows):
            params = {"input": [{"role": "user", "content": f"{number}: {QUESTION}"}]}
            file.write(json.dumps({"responses_create_params": params, "burn_ms": burn_ms}) + "\n")
    chosen = Options(model=f"scripted:{script}", input=path, output=Path(folder) / "out", **options)
    return Collection(str(ENVIRONMENT), chosen)


def once(rows: int, repeats: int, burn_ms: float, workers: int) -> dict[str, float]:
    """The wall and processor seconds of one collection, without the check of its rows. Starting workers counts."""
    with tempfile.TemporaryDirectory() as folder:
        found = collection(folder, rows, burn_ms, repeats=repeats, workers=workers)
        collector = found.prepare()
        began, used = time.perf_counter(), time.process_time()
        asyncio.run(found.run(collector))
        wall, used = time.perf_counter() - began, time.process_time() - used
        if found.metrics["counts"]["completed"] != rows * repeats:
            raise RuntimeError(f"Not every rollout completed: {found.metrics['counts']}")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall_s": wall, "cpu_s": used + children.ru_utime + children.ru_stime}


def speed(rows: int, repeats: int, burn_ms: float, rounds: int) -> dict[str, float]:
    """One process against two, in turns, each in a fresh process. The best of each counts.

    `speedup_by_cpu` is what two cores allow that nothing else uses: twice the processor time of one process, divided by
    that of parent and workers.
    """
    best: dict[int, dict[str, float]] = {}
    for _ in range(rounds):
        for workers in (1, 2):
            words = ["once", "--rows", rows, "--repeats", repeats, "--burn-ms", burn_ms, "--workers", workers]
            run = run_json([sys.executable, str(HERE / "workers.py"), *map(str, words)])
            before = best.get(workers, run)
            best[workers] = {key: min(before[key], run[key]) for key in run}
    one, two = best[1], best[2]
    ratios = {"speedup": one["wall_s"] / two["wall_s"], "speedup_by_cpu": 2 * one["cpu_s"] / two["cpu_s"]}
    return {**ratios, "one_s": one["wall_s"], "two_s": two["wall_s"]}


def pace(rows: int, repeats: int, burn_ms: float, ray: str | None) -> dict[str, float]:
    """The rollouts a second of two workers, from a tenth of the rollouts on: all workers have started by then."""
    seen: list[tuple[float, int]] = []

    async def watch(collector: Collector) -> None:
        while True:
            await asyncio.sleep(0.01)
            if not seen and collector.progress.finished >= rows * repeats // 10:
                seen.append((time.perf_counter(), collector.progress.finished))
            if len(seen) == 1 and collector.progress.finished == rows * repeats:
                seen.append((time.perf_counter(), collector.progress.finished))

    with tempfile.TemporaryDirectory() as folder:
        found = collection(folder, rows, burn_ms, repeats=repeats, workers=2, ray=ray)
        asyncio.run(found.run(found.prepare(), watch))
    (began, first), (ended, last) = seen
    return {"per_second": (last - first) / (ended - began)}


def ray_pace(rows: int, repeats: int, burn_ms: float, rounds: int) -> dict[str, float]:
    """Ray on this machine with two actors against `--workers 2`, in turns, each in a fresh process. The best counts."""
    best = {"workers": 0.0, "ray": 0.0}
    for _ in range(rounds):
        for which in best:
            words = ["pace", "--rows", rows, "--repeats", repeats, "--burn-ms", burn_ms, "--engine", which]
            run = run_json([sys.executable, str(HERE / "workers.py"), *map(str, words)])
            best[which] = max(best[which], run["per_second"])
    return {"ratio": best["ray"] / best["workers"], **{f"{name}_per_second": value for name, value in best.items()}}


def memory(rollouts: int, repeats: int = 16) -> dict[str, Any]:
    """The memory of the parent at every tenth of many rollouts."""
    seen: list[int] = []

    async def watch(collector: Collector) -> None:
        while True:
            await asyncio.sleep(0.05)
            if collector.progress.finished >= (len(seen) + 1) * rollouts // 10:
                seen.append(rss_bytes())

    with tempfile.TemporaryDirectory() as folder:
        found = collection(folder, rollouts // repeats, 0, repeats=repeats, workers=2)
        collector = found.prepare()
        asyncio.run(found.run(collector, watch))
    return {"rollouts": rollouts, "growth_bytes": seen[-1] - seen[0], "megabytes": [round(each / 1e6) for each in seen]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "once", "memory", "ray", "pace"])
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--burn-ms", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--engine", choices=["workers", "ray"], default="workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    given = parser.parse_args()
    if given.what == "memory":
        print(json.dumps(memory(given.rollouts)))
        return
    rows = given.rows or (200 if given.burn_ms else 8000)
    if given.what == "pace":
        print(json.dumps(pace(rows, given.repeats, given.burn_ms, "local" if given.engine == "ray" else None)))
    elif given.what == "ray":
        print(json.dumps(ray_pace(rows, given.repeats, given.burn_ms, given.rounds)))
    elif given.what == "once":
        print(json.dumps(once(rows, given.repeats, given.burn_ms, given.workers)))
    else:
        print(json.dumps(speed(rows, given.repeats, given.burn_ms, given.rounds)))


if __name__ == "__main__":
    main()
