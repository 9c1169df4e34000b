"""The model proxy of programs with one rollout in it, on a thread, so that blocking clients can call it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from ludus import Environment
from ludus.agents.command_proxy import Proxy
from ludus.agents.program_calls import ProgramCalls
from ludus.episode import Episode
from ludus.limits import Limits
from ludus.model import Model
from ludus.rollout import Job
from ludus.task import Task

ROW: dict[str, Any] = {"responses_create_params": {"input": "hi"}}

#: The same short request in each dialect, by its path.
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "/v1beta/models/m:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
}


@contextmanager
def proxied(model: Model, max_calls: int = 100, **options: Any) -> Iterator[ProgramCalls]:
    """The calls of a program, which may use `url` and `key` meanwhile."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()

    async def enter() -> ProgramCalls:
        job = Job("t-0", "t", 0, Task.model_validate(ROW), ROW)
        resources = Environment.load("example_session_state_mgmt").session(None, 0)
        proxy = await stack.enter_async_context(Proxy())
        program: ProgramCalls = stack.enter_context(
            proxy.register(Episode(job, resources, model, Limits()), max_calls, **options)
        )
        return program

    try:
        yield asyncio.run_coroutine_threadsafe(enter(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
