"""The floor: the cost of the same model calls without a framework.

One aiohttp session, one dict per rollout, the whole input encoded again every turn; no journal, no verifier, no retry.
The benchmark reports the cost of the collector as a ratio to this floor.

    python benchmarks/floor.py --url http://127.0.0.1:8000 --rollouts 3000 --concurrency 64
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import orjson
from measure import Meter
from yarl import URL

from ludus.runtime.running import raise_file_limit

TOOL = {
    "type": "function",
    "name": "increment_counter",
    "description": "Add to the counter.",
    "parameters": {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
        "additionalProperties": False,
    },
    "strict": True,
}
HEADERS = {"Content-Type": "application/json"}
TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


async def rollout(session: aiohttp.ClientSession, url: URL, tool_output: str) -> int:
    """Call the model until it stops calling the tool; return the number of model calls."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "Add 1 to the counter, then say done."}]
    request = {"model": "stub", "input": items, "tools": [TOOL]}
    calls = 0
    while True:
        async with session.post(url, data=orjson.dumps(request), headers=HEADERS) as response:
            body = await response.read()
            if response.status != 200:
                raise RuntimeError(f"The model server answered {response.status}: {body[:200]!r}")
        calls += 1
        output = orjson.loads(body)["output"]
        for key in TOKENS:
            output[-1].pop(key, None)
        items.extend(output)
        called = [item["call_id"] for item in output if item["type"] == "function_call"]
        if not called:
            return calls
        items.extend({"type": "function_call_output", "call_id": call_id, "output": tool_output} for call_id in called)


async def run(base_url: str, rollouts: int, concurrency: int, turns: int, tool_bytes: int) -> dict[str, Any]:
    """Measure `rollouts` rollouts of `turns` tool calls each, `concurrency` in flight."""
    url = URL(base_url) / "v1/responses"
    tool_output = "x" * tool_bytes
    calls = 0

    async def worker(session: aiohttp.ClientSession, todo: Iterator[int]) -> None:
        nonlocal calls
        for _ in todo:
            # Not `calls += await ...`: that reads `calls` before the await and loses the updates of other workers.
            made = await rollout(session, url, tool_output)
            calls += made

    async with Meter() as meter, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        todo = iter(range(rollouts))
        await asyncio.gather(*(worker(session, todo) for _ in range(concurrency)))
    if calls != rollouts * (turns + 1):
        raise RuntimeError(f"Made {calls} calls, not {rollouts * (turns + 1)}: start the server with --turns {turns}")
    return {**meter.report(), "rollouts": rollouts, "calls": calls}


def read_options(description: str) -> argparse.Namespace:
    """The options of a loop without a framework."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--url", required=True, help="base URL of the model server")
    parser.add_argument("--rollouts", type=int, default=3000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1, help="tool calls per rollout; the server needs the same")
    parser.add_argument("--tool-bytes", type=int, default=16, help="length of every tool output")
    return parser.parse_args()


def main() -> None:
    options = read_options("Measure the bare loop.")
    raise_file_limit()
    result = asyncio.run(run(options.url, options.rollouts, options.concurrency, options.turns, options.tool_bytes))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
