"""A model server for the comparison of frameworks: it answers at once, or fails for chosen tasks, and counts.

    python benchmarks/framework_jobs/stub.py --fail-every 10      prints its URL

It finds the task's number in the request. With `--fail-every 10` each request of the tasks 3, 13, 23, ... gets a 500.
`GET /stats` has the number of answers for each task and the time of the first answer.
"""

import argparse
import asyncio
import re
import time
from collections import Counter

import orjson
import uvicorn
from job import answer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ludus.bench.stub_script import chat_answer, responses_answer
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
