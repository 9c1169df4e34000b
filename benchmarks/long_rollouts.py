"""Long agentic rollouts in numbers: does memory stay flat, and how much is written to disk for each byte that stays?

A stub in the same process answers every turn with 800 tokens of text and a tool call. One collection of `--tasks` tasks
with 16 repeats; every tenth of it reports the resident memory and the bytes written so far.

    python benchmarks/long_rollouts.py --tasks 200 --delay 0

`written` is what the kernel was given to write, less what was removed again before it went to the disk; `handed` is
all that was handed to `write`. Both are shown as parts of the final journals.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from measure import rss_bytes
from product import Counter

from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.models.scripted import ScriptedModel
from ludus.runtime import running

REPEATS = 16
#: About 800 tokens.
TEXT = " ".join(f"step {number} looks at the file and finds nothing new;" for number in range(70))[:3200]


def io_bytes() -> tuple[int, int]:
    """Bytes that this process handed to `write`, and those that went to the disk or will."""
    pairs = (line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    counted = {name: int(value) for name, value in pairs}
    return counted["wchar"], counted["write_bytes"] - counted["cancelled_write_bytes"]


def model(turns: int, delay: float) -> ScriptedModel:
    """Answers with a text and a tool call, `turns` times, then with a text."""
    step = {"text": TEXT, "call": "increment_counter", "arguments": {"count": 1}, "delay": delay}
    return ScriptedModel([*([step] * turns), "Done."])


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Collect, and watch."""
    Counter.answer = "x" * 64
    rows = [
        {"responses_create_params": {"input": f"Task {number}"}, "number": number} for number in range(options.tasks)
    ]
    chosen = Options(
        model=model(options.turns, options.delay),
        input=rows,
        repeats=REPEATS,
        output=folder / "out",
        concurrency=options.concurrency,
        settings={"agent.max_steps": options.turns + 1},
        checkpoint=None if options.checkpoint else False,
    )
    collection = Collection(Counter, chosen)
    collector = collection.prepare()
    tenths: list[dict[str, float]] = []
    total = options.tasks * REPEATS

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.2)
            done = collector.progress.finished
            if done * 10 // total > len(tenths) - 1:
                tenths.append({"done": done, "rss_mb": rss_bytes() >> 20})

    handed, written = io_bytes()
    cpu, began = process_time(), perf_counter()
    watching = asyncio.create_task(watch())
    await collection.run(collector)
    watching.cancel()
    journal = sum(file.stat().st_size for file in (folder / "out").iterdir() if file.is_file())
    now = io_bytes()
    assert collection.metrics["counts"]["completed"] == total
    return {
        "rollouts": total,
        "turns": options.turns,
        "cpu_ms_a_rollout": round((process_time() - cpu) * 1000 / total, 2),
        "seconds": round(perf_counter() - began, 1),
        "journal_mb": journal >> 20,
        "handed": round((now[0] - handed) / journal, 3),
        "written": round((now[1] - written) / journal, 3),
        "rss_mb": tenths,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure long agentic rollouts.")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds of a model call")
    parser.add_argument("--checkpoint", action=argparse.BooleanOptionalAction, default=True, help="save each turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(running.run(measure(options, Path(folder)))))


if __name__ == "__main__":
    main()
