"""Helpers of the server tests: servers on a thread, a scripted model, and a small HTTP client."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ludus.model import Request
from ludus.response import Response, function_call, message
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving

#: The PYTHONPATH of processes that need a module of these tests, such as a scripted model.
TESTS_PATH = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
COUNTER = "example_session_state_mgmt"
COUNTER_ROW: dict[str, Any] = {
    "responses_create_params": {"input": "add 3 to the counter"},
    "initial_count": 1,
    "expected_count": 4,
}


def count_to_three(request: Request) -> Response:
    """Add 3 to the counter, then answer with the request's seed, so that rollouts with different seeds differ."""
    if request.turn == 0:
        return Response.of(function_call("increment_counter", {"count": 3}, call_id="call_1"), model="counting")
    return Response.of(message(f"The counter is up by 3, says {request.seed}."), model="counting")


def count_tokens(request: Request) -> Response:
    """Answers with a usage that lacks the total and the details."""
    return Response.of(message("yes"), usage={"input_tokens": 7, "output_tokens": 3})


def name_the_call(request: Request) -> Response:
    """Answers with the session, the seed and the turn of the call."""
    return Response.of(message(json.dumps([request.session, request.seed, request.turn])))


@contextmanager
def served(*environments: str, model: str = "scripted:serving:count_to_three", **options: Any) -> Iterator[Serving]:
    """Run servers on another thread, so that a test without an event loop can call them."""
    plan = Plan.of(list(environments), model, head_port=0, **options)
    serving, loop = Serving(plan), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(serving.start(), loop).result(300)
        yield serving
    finally:
        asyncio.run_coroutine_threadsafe(serving.stop(), loop).result(300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def url_of(serving: Serving, name: str) -> str:
    """The URL of the plan's server with this name."""
    return next(server.url for server in serving.plan.servers if server.name == name)


@dataclass
class WebReply:
    """A server's status, body and headers."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Web:
    """A blocking HTTP client. It keeps cookies unless `cookies` is False."""

    def __init__(self, url: str, cookies: bool = True, token: str = "") -> None:
        parts = urlsplit(url)
        self._host, self._port, self._below = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._keeps_cookies = cookies
        self._token = token
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> WebReply:
        return self._send("GET", path, b"", {})

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> WebReply:
        return self._send("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers or {})

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> WebReply:
        connection = HTTPConnection(self._host, self._port, timeout=300)
        if self.cookies:
            headers = {**headers, "Cookie": "; ".join(f"{key}={value}" for key, value in self.cookies.items())}
        if self._token:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        try:
            connection.request(method, self._below + path, body, {"Content-Type": "application/json", **headers})
            reply = connection.getresponse()
            answer = WebReply(reply.status, reply.read(), {key.lower(): value for key, value in reply.getheaders()})
        finally:
            connection.close()
        if self._keeps_cookies and (cookie := answer.headers.get("set-cookie")):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer
