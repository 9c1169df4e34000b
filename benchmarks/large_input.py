"""A million rows: the memory growth of the collector from its 1,000th to its 20,000th rollout.

python benchmarks/large_input.py
"""

import asyncio
import json
import tempfile
from pathlib import Path

from measure import rss_bytes

from ludus import Rollout, ScriptedModel
from ludus.collection.collection import Collection
from ludus.collection.options import Options

ROWS = 1_000_000
FIRST, LAST = 1_000, 20_000


class LastRollout(Exception):
    """The last measured rollout has ended."""


async def measure(path: Path, output: Path) -> dict[str, int]:
    options = Options(model=ScriptedModel(["done"]), input=path, output=output, concurrency=64)
    collection = Collection("example_session_state_mgmt", options)
    seen: dict[int, int] = {}
    count = 0

    async def watch(_: Rollout) -> None:
        nonlocal count
        count += 1
        if count in (FIRST, LAST):
            seen[count] = rss_bytes()
        if count == LAST:
            raise LastRollout

    collector = collection.prepare(sink=watch)
    try:
        await collection.run(collector)
    except LastRollout:
        pass
    return {"rows": ROWS, "rollouts": count, "growth_bytes": seen[LAST] - seen[FIRST]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        with path.open("w") as file:
            for number in range(ROWS):
                row = {"responses_create_params": {"input": f"row {number}"}, "initial_count": 0, "expected_count": 0}
                file.write(json.dumps(row) + "\n")
        print(json.dumps(asyncio.run(measure(path, Path(folder) / "out"))))


if __name__ == "__main__":
    main()
