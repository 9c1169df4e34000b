"""`ludus verify` of 100,000 stored rollouts: its memory, and its speed against reading and writing the file.

python benchmarks/verify_file.py

The floor parses every line and writes it again with orjson, in one process. Floor and product alternate in fresh
processes and the best run of each is compared. The product writes an output: `same` with the verifier that gave the
rewards, `other` with another setting, which changes every line. `growth_bytes` is the memory growth of the main process
from row 10,000 to the end; `family_peak_bytes` is the peak of the main process and its helper processes together.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import orjson
from measure import rss_bytes, run_json

import ludus
from ludus import ScriptedModel

ROWS = 100_000
FIRST = 10_000
TEXT = "Let me go through the options one by one, and rule out those that cannot be right. " * 6


def make(path: Path, rows: int, repeats: int = 1) -> None:
    """Collect 500 rollouts and write copies with other ids until there are enough. The repeats of 8 tasks alternate."""
    letters = "ABCD"
    options = [{letter: f"the option called {letter}, which says something"} for letter in letters]
    given = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": f"Question {number}. {TEXT}"}]},
            "options": options,
            "expected_answer": letters[number % 4],
        }
        for number in range(500)
    ]
    model = ScriptedModel(lambda request: f"{TEXT}\n\nSo it is \\boxed{{{letters[request.seed % 4]}}}.")
    kept = [orjson.loads(rollout.encode()) for rollout in ludus.collect("mcqa", model=model, input=given).rollouts]
    with path.open("wb") as file:
        for number in range(rows):
            repeat, place = number // 8 % repeats, number // (8 * repeats) * 8 + number % 8
            row = kept[place % len(kept)]
            name = f"{row['task_id']}.{place}"
            ids = {"task_id": name, "rollout_id": f"{name}-{repeat}", "repeat": repeat}
            file.write(orjson.dumps({**row, **ids}) + b"\n")


def floor(source: Path, target: Path) -> dict[str, float]:
    began = time.perf_counter()
    with source.open("rb") as lines, target.open("wb") as file:
        for line in lines:
            file.write(orjson.dumps(orjson.loads(line)) + b"\n")
    return {"wall_s": time.perf_counter() - began}


def family_rss() -> int:
    """The resident memory of this process and its children."""
    total = rss_bytes()
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        try:
            total += int(Path(f"/proc/{child}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # the child has ended
            continue
    return total


async def product(source: Path, target: Path, settings: dict[str, str]) -> dict[str, float]:
    from ludus.rescore.rescoring import Rescoring

    rescoring = Rescoring(source, "mcqa", output=target, settings=settings)
    first, peak, family_peak = 0, 0, 0

    async def watch() -> None:
        nonlocal first, peak, family_peak
        while True:
            await asyncio.sleep(0.01)
            if rescoring.changes.rows >= FIRST:
                first = first or rss_bytes()
                peak, family_peak = max(peak, rss_bytes()), max(family_peak, family_rss())

    watching = asyncio.create_task(watch())
    began = time.perf_counter()
    await rescoring.run()
    wall = time.perf_counter() - began
    watching.cancel()
    assert rescoring.changes.counts["failed"] == 0
    return {"wall_s": wall, "growth_bytes": peak - first, "family_peak_bytes": family_peak}


def compare(rows: int, rounds: int, repeats: int) -> dict[str, float]:
    """The best floor run and the best product runs with the same verifier and with another setting."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rollouts.jsonl", Path(folder) / "out.jsonl"
        make(source, rows, repeats)
        runs: dict[str, list[dict[str, float]]] = {"floor": [], "same": [], "other": []}
        for _ in range(rounds):
            for name, found in runs.items():
                target.unlink(missing_ok=True)
                words = [sys.executable, str(Path(__file__)), "--run", name, str(source), str(target)]
                found.append(run_json(words))
        best = {name: min(run["wall_s"] for run in found) for name, found in runs.items()}
        return {
            "rows": rows,
            "bytes": source.stat().st_size,
            **{f"{name}_s": seconds for name, seconds in best.items()},
            "speed_same": best["floor"] / best["same"],
            "speed_other": best["floor"] / best["other"],
            **{key: min(run[key] for run in runs["same"]) for key in ("growth_bytes", "family_peak_bytes")},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1, help="rollouts of each task")
    parser.add_argument("--run", nargs=3, metavar=("CASE", "SOURCE", "TARGET"), help="measure once in this process")
    options = parser.parse_args()
    if options.run is None:
        print(json.dumps(compare(options.rows, options.rounds, options.repeats)))
        return
    case, source, target = options.run[0], Path(options.run[1]), Path(options.run[2])
    settings = {"resources.grading_mode": "lenient_boxed"} if case == "other" else {}
    print(json.dumps(floor(source, target) if case == "floor" else asyncio.run(product(source, target, settings))))


if __name__ == "__main__":
    main()
