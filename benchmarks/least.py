"""The least that a collector can cost in Python: the floor's calls and one line for each rollout, and no framework.

It makes the same model calls as floor.py, on the same event loop and with the same HTTP client as the collector, and
does by hand what a record needs at least: the row and its digest, the check of the tool's arguments, the verdict, the
receipt's digests, the line of the journal. It has no deadlines, retries, sessions, failures, checkpoints or metrics.

    python benchmarks/least.py --url http://127.0.0.1:8000 --rollouts 3000 --concurrency 64
"""

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import orjson
from floor import TOOL, read_options
from measure import Meter
from pydantic import BaseModel

from ludus.http.client import Connections
from ludus.runtime import running

HEADERS = {"content-type": "application/json"}


class Arguments(BaseModel, strict=True, extra="forbid"):
    """What the tool takes."""

    count: int


def digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


async def rollout(client: Connections, number: int, tool_output: str, journal: int) -> None:
    """Play one rollout and write its line."""
    began = perf_counter()
    question = {"role": "user", "content": "Add 1 to the counter, then say done."}
    params = {"input": [question], "tools": [TOOL]}
    row = {"responses_create_params": params, "number": number}
    name, items, total, times = digest(row)[:16], [question], 0, []
    while True:
        asked = perf_counter()
        body = orjson.dumps({"model": "stub", "input": items, "tools": [TOOL]})
        reply = await client.request("POST", "/v1/responses", body)
        if reply.status != 200:
            raise RuntimeError(f"The model server answered {reply.status}: {reply.body[:200]!r}")
        answer = orjson.loads(reply.body)
        times.append(["model", asked - began, perf_counter() - asked])
        items.extend(answer["output"])
        called = [item for item in answer["output"] if item["type"] == "function_call"]
        if not called:
            break
        for call in called:
            total += Arguments.__pydantic_validator__.validate_json(call["arguments"]).count
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": tool_output})
    reward = float(total > 0)
    record: dict[str, Any] = {
        "rollout_id": f"{name}-0",
        "task_id": name,
        "repeat": 0,
        "outcome": "completed",
        **row,
        "reward": reward,
        "response": {**answer, "output": items[1:]},
        "timings": times,
        "stop_reason": "answered",
    }
    record["receipt"] = {"task": digest(row), "response": digest(record["response"]), "verdict": digest(reward)}
    os.write(journal, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


async def run(url: str, rollouts: int, concurrency: int, tool_bytes: int) -> dict[str, Any]:
    """Measure `rollouts` rollouts, `concurrency` in flight."""
    client, tool_output = Connections(url, HEADERS), "x" * tool_bytes
    todo = iter(range(rollouts))

    async def worker(todo: Iterator[int], journal: int) -> None:
        for number in todo:
            await rollout(client, number, tool_output, journal)

    with tempfile.TemporaryFile() as file:
        async with Meter() as meter:
            await asyncio.gather(*(worker(todo, file.fileno()) for _ in range(concurrency)))
        await client.close()
    return {**meter.report(), "rollouts": rollouts}


def main() -> None:
    options = read_options("Measure the least that a collector can cost.")
    print(json.dumps(running.run(run(options.url, options.rollouts, options.concurrency, options.tool_bytes))))


if __name__ == "__main__":
    main()
