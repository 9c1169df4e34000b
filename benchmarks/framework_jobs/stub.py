"""A model server for the comparison of frameworks: it answers at once, or fails for chosen tasks, and counts.

    python benchmarks/framework_jobs/stub.py --fail-every 10      prints its URL

It finds the task's number in the request. If the request offers a tool that was not called yet, the answer calls it.
With `--fail-every 10` each request of the tasks 3, 13, 23, ... gets a 500. `GET /stats` has the number of answers, how
many of them were asked for again, and the time of the first request.
"""

import argparse
import asyncio
import re
import time
from collections import Counter
from typing import Any

import orjson
import uvicorn
from job import answer
from ludus_bench.stub_script import chat_answer, responses_answer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ludus.http.listening import bind

_TASK = re.compile(rb"Task <(\d+)>")


class Stub:
    """The routes and the counts."""

    def __init__(self, fail_every: int, delay: float) -> None:
        self._fail_every, self._delay = fail_every, delay
        self._answers: Counter[int] = Counter()
        self._first: float | None = None

    async def model(self, request: Request) -> Response:
        """Answer a request of either API."""
        found = _TASK.search(await request.body())
        number = int(found[1]) if found else -1
        self._first = self._first or time.time()
        if self._fail_every and number % self._fail_every == 3:
            return _json({"error": {"message": "the model server is down"}}, 500)
        tool = _tool_to_call(orjson.loads(await request.body()))
        if tool is not None:
            return _json(_call(request, tool, number))
        if self._delay:
            await asyncio.sleep(self._delay)
        self._answers[number] += 1
        if request.url.path.endswith("/responses"):
            content = [{"type": "output_text", "text": answer(number), "annotations": []}]
            item = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
            return _json(responses_answer(0, item))
        return _json(chat_answer(0, {"role": "assistant", "content": answer(number)}, "stop"))

    async def stats(self, request: Request) -> Response:
        """How often each task was answered, and when the first request came."""
        repeated = sum(count - 1 for count in self._answers.values())
        return _json({"answers": self._answers.total(), "repeated": repeated, "first": self._first})


def _tool_to_call(body: dict[str, Any]) -> str | None:
    """The name of the first tool of a request, if the request holds no output of a tool yet."""
    asked = body.get("messages") or body["input"]
    items = [item for item in asked if isinstance(item, dict)]
    if not body.get("tools") or any("tool_call_id" in item or "call_id" in item for item in items):
        return None
    first = body["tools"][0]
    return str(first.get("function", first)["name"])


def _call(request: Request, tool: str, number: int) -> dict[str, Any]:
    """An answer of either API that calls a tool with the task's number."""
    arguments = orjson.dumps({"number": number}).decode()
    if request.url.path.endswith("/responses"):
        called = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "status": "completed"}
        return responses_answer(0, {**called, "name": tool, "arguments": arguments})
    call = {"id": "call_0", "type": "function", "function": {"name": tool, "arguments": arguments}}
    return chat_answer(0, {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    given = parser.parse_args()
    stub = Stub(given.fail_every, given.delay)
    routes = [Route(path, stub.model, methods=["POST"]) for path in ("/v1/responses", "/v1/chat/completions")]
    listening = bind("the stub", "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Starlette(routes=[*routes, Route("/stats", stub.stats)]), access_log=False, log_level="error", http="httptools"
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
