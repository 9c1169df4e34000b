"""The job in OpenEnv: its server with one environment, and the asynchronous loop of its documents for each rollout.

OpenEnv has no collector: this loop is what its users write. It keeps its results in memory, so nothing is resumed.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from job import options, report
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openenv.core.generic_client import GenericEnvClient

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up a number.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}


async def rollout(server: str, model: AsyncOpenAI, number: int, offered: dict[str, Any]) -> float:
    """Reset, ask the model until it answers, and step with what it says."""
    async with GenericEnvClient(base_url=server) as env:
        said = await env.reset(seed=number)
        messages: list[Any] = [{"role": "user", "content": said.observation["text"]}]
        while True:
            completion = await model.chat.completions.create(model="stub", messages=messages, **offered)
            message = completion.choices[0].message
            if not message.tool_calls:
                return float((await env.step({"text": message.content})).reward)
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                said = await env.step(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said.observation["text"]})


async def collect(server: str, given: Any) -> list[tuple[int, float | None]]:
    """All rollouts, so many at once."""
    limits = httpx.Limits(max_connections=given.concurrency, max_keepalive_connections=given.concurrency)
    http = DefaultAsyncHttpxClient(limits=limits)
    model = AsyncOpenAI(base_url=given.url, api_key="none", http_client=http)
    places = asyncio.Semaphore(given.concurrency)

    async def play(number: int) -> tuple[int, float | None]:
        async with places:
            try:
                return number, await rollout(server, model, number, {"tools": [TOOL]} if given.tool else {})
            except Exception as error:
                print(f"rollout {number}: {error!r}", file=sys.stderr)
                return number, None

    return await asyncio.gather(*map(play, range(given.rollouts)))


def main() -> None:
    given = options()
    command = [sys.executable, str(Path(__file__).parent / "openenv_server.py"), str(given.concurrency)]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        server = f"http://127.0.0.1:{served.stdout.readline().strip()}"
        report(asyncio.run(collect(server, given)))
    finally:
        served.terminate()
        served.wait()


if __name__ == "__main__":
    main()
