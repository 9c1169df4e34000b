"""Helpers of the server tests: a plan served on a loop of its own, and a model that needs no weights."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ludus.model import Request
from ludus.response import Response, function_call, message
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving

COUNTER = "example_session_state_mgmt"
COUNTER_ROW: dict[str, Any] = {
    "responses_create_params": {"input": "add 3 to the counter"},
    "initial_count": 1,
    "expected_count": 4,
}


def count_to_three(request: Request) -> Response:
    """Adds 3, then says what it was seeded with: a rollout that differs with its seed."""
    if request.turn == 0:
        return Response.of(function_call("increment_counter", {"count": 3}, call_id="call_1"), model="counting")
    return Response.of(message(f"The counter is up by 3, says {request.seed}."), model="counting")


@contextmanager
def served(*environments: str, model: str = "scripted:serving:count_to_three", **options: Any) -> Iterator[Serving]:
    """Servers on another thread, so that plain code can be their client."""
    plan = Plan.of(list(environments), model, head_port=0, **options)
    serving, loop = Serving(plan), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(serving.start(), loop).result(30)
        yield serving
    finally:
        asyncio.run_coroutine_threadsafe(serving.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def url_of(serving: Serving, name: str) -> str:
    """Where a server of a plan listens."""
    return next(server.url for server in serving.plan.servers if server.name == name)
