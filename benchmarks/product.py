"""The collector, measured: the floor's model calls, made by Ludus with tools, verdicts and journals.

python benchmarks/product.py --url http://127.0.0.1:8000 --rollouts 3000 --concurrency 64
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from floor import TOOL
from measure import Meter

import ludus
from ludus import Resources, Response, tool
from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.runtime import running


class Counter(Resources):
    """The floor's constant tool, with state and a verifier."""

    answer = ""

    async def open(self, task: ludus.Task) -> None:
        self.count = 0

    @tool
    async def increment_counter(self, count: int) -> str:
        """Add to the counter."""
        self.count += count
        return self.answer

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return float(self.count > 0)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one collection from the first row to the last line of the journal."""
    Counter.answer = "x" * options.tool_bytes
    params = {"input": [{"role": "user", "content": "Add 1 to the counter, then say done."}], "tools": [TOOL]}
    rows = [{"responses_create_params": params, "number": number} for number in range(options.rollouts)]
    with tempfile.TemporaryDirectory() as folder:
        endpoints = [f"{url}/v1" for url in options.url.split(",")]
        chosen = Options(
            model={"type": "openai", "model": "stub", "base_url": endpoints},
            agent=options.agent,
            input=rows,
            output=Path(folder) / "out",
            concurrency=options.concurrency,
            tokens=options.tokens,
            checkpoint=None if options.checkpoint else False,
            settings=None if options.agent else {"agent.max_steps": options.turns + 1},
        )
        served = str(Path(__file__).parent / "bench_env")  # what the server at --agent serves
        collection = Collection(served if options.agent else Counter, chosen)
        collector = collection.prepare()
        async with Meter() as meter:
            await collection.run(collector)
        counts = collection.metrics["counts"]
        size = (Path(folder) / "out" / "rollouts.jsonl").stat().st_size / options.rollouts
    if counts["completed"] != options.rollouts or collection.metrics["reward"]["mean"] != 1.0:
        raise RuntimeError(f"Not every rollout completed with reward 1: {counts}, {collection.metrics['failures']}")
    return {**meter.report(), "rollouts": options.rollouts, "row_bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the collector.")
    parser.add_argument("--url", default="", help="base URL of the model server, or several separated by commas")
    parser.add_argument("--agent", help="URL of an agent server that runs the rollouts")
    parser.add_argument("--rollouts", type=int, default=3000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1, help="tool calls per rollout; the server needs the same")
    parser.add_argument("--tool-bytes", type=int, default=16, help="length of every tool output")
    parser.add_argument("--checkpoint", action=argparse.BooleanOptionalAction, default=True, help="save each turn")
    parser.add_argument("--tokens", action="store_true", help="require token ids")
    print(json.dumps(running.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
