"""`ludus data export` of stored rollouts: its speed against reading and writing the file, and its memory.

python benchmarks/export_file.py [--tools]

The floor parses every line and writes it again with orjson. Each export is compared with a run of the floor just before
it, both in fresh processes, and the median of the rounds is printed: `speed` by wall time, `cpu` by CPU time, that of
helper processes included.
Tasks have eight rollouts each, which lie as far apart as they can. With `--tools` every rollout reasons about three
calls of a tool and makes them.
`growth_bytes` says by how much an export of a million rollouts needs more memory than its first tenth needed.
"""

import argparse
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
from ludus_data.export.exporting import export
from ludus_data.export.registry import FORMATS
from measure import rss_bytes, run_json
from verify_file import floor
from verify_file import make as make_verified

ROWS = 100_000
MANY = 1_000_000
REPEATS = 8
#: The formats whose memory is measured: one for each way of reading and of writing.
MEASURED = ("sft", "dpo", "grpo", "csv", "hf", "verl")


def steps(number: int) -> list[dict[str, object]]:
    """What a model does before it answers: a thought and a call."""
    thought = "I should look up the weather in this city first, and then decide. " * 3
    arguments = json.dumps({"city": "Paris", "days": number})
    output = json.dumps({"temperature": 20 + number, "text": "sunny with clouds " * 5})
    return [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": thought}]},
        {"type": "function_call", "call_id": f"call_{number}", "name": "get_weather", "arguments": arguments},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": output},
    ]


def with_tools(row: dict[str, Any]) -> dict[str, Any]:
    """A rollout that calls a tool three times before it answers."""
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": ["city", "days"]}
    tool = {"type": "function", "name": "get_weather", "description": "The weather", "parameters": parameters}
    response = row["response"]
    output = [item for number in range(3) for item in steps(number)] + response["output"]
    calls = [{"items": 2}] * 3 + row["model_calls"]  # each call of the model wrote a thought and a call of the tool
    return {**row, "response": {**response, "output": output, "tools": [tool]}, "model_calls": calls}


def make(path: Path, rows: int, *, tools: bool) -> None:
    """Copies of 500 collected rollouts, as rollouts of tasks whose repeats are far apart and differ in their reward."""
    make_verified(path, 500)
    kept = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    if tools:
        kept = [with_tools(row) for row in kept]
    tasks = max(rows // REPEATS, 1)
    with path.open("wb") as file:
        for number in range(rows):
            repeat, task = divmod(number, tasks)
            name = f"task-{task}"
            ids = {"task_id": name, "rollout_id": f"{name}-{repeat}", "repeat": repeat}
            file.write(orjson.dumps({**kept[(task * 7 + repeat) % 500], **ids}) + b"\n")


def product(source: Path, target: Path, to: str) -> dict[str, float]:
    first = peak = 0

    def watch(share: float) -> None:
        nonlocal first, peak
        peak = max(peak, rss_bytes())
        if share <= 0.1:
            first = peak

    made = export(source, to, target, overwrite=True, tick=watch)
    assert made.rollouts == made.used + sum(made.left_out.values())
    return {"growth_bytes": peak - first, "peak_bytes": peak, "rows": made.rows}


def measured(case: str, source: Path, target: Path) -> dict[str, float]:
    """A measurement in this process."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    found = floor(source, target) if case == "floor" else product(source, target, case)
    return {**found, "wall_s": time.perf_counter() - wall, "cpu_s": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """The CPU time of this process and of its helpers that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run(case: str, source: Path, target: Path) -> dict[str, float]:
    """One measurement in a fresh process."""
    if target.is_dir():  # an export to hf
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    return run_json([sys.executable, str(Path(__file__)), "--run", case, str(source), str(target)])


def median(pairs: list[tuple[dict[str, float], dict[str, float]]], key: str) -> float:
    """The median of the floor against the product."""
    return statistics.median(floor[key] / made[key] for floor, made in pairs)


def compare(rows: int, many: int, rounds: int, *, tools: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rollouts.jsonl", Path(folder) / "out.jsonl"
        make(source, rows, tools=tools)
        found: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {name: [] for name in FORMATS}
        for _ in range(rounds):
            for name, pairs in found.items():
                pairs.append((run("floor", source, target), run(name, source, target)))
        if many:
            make(source, many, tools=tools)
        memory = {name: run(name, source, target) for name in MEASURED} if many else {}
    return {
        "rows": rows,
        "seconds": {name: min(made["wall_s"] for _, made in pairs) for name, pairs in found.items()},
        "speed": {name: median(pairs, "wall_s") for name, pairs in found.items()},
        "cpu": {name: median(pairs, "cpu_s") for name, pairs in found.items()},
        "many": many,
        "growth_bytes": {name: each["growth_bytes"] for name, each in memory.items()},
        "peak_bytes": {name: each["peak_bytes"] for name, each in memory.items()},
        "seconds_many": {name: each["wall_s"] for name, each in memory.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--many", type=int, default=MANY, help="rollouts of the measurement of memory; 0 for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", action="store_true", help="rollouts that reason and call a tool")
    parser.add_argument("--run", nargs=3, metavar=("CASE", "SOURCE", "TARGET"), help="measure once in this process")
    options = parser.parse_args()
    if options.run is None:
        print(json.dumps(compare(options.rows, options.many, options.rounds, tools=options.tools)))
        return
    case, source, target = options.run[0], Path(options.run[1]), Path(options.run[2])
    print(json.dumps(measured(case, source, target)))


if __name__ == "__main__":
    main()
