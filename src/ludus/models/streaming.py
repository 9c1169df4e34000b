"""A model's answer as the stream events of the Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ludus.dialects.responses_stream import response_events
from ludus.model import Model, Request


async def stream(model: Model, request: Request) -> AsyncIterator[dict[str, Any]]:
    """Ask any model and yield its answer as streaming events, from `response.created` to `response.completed`.

    The answer is complete before the first event, so a reader that disconnects does not change the recorded answer.

    async for event in stream(model, Request("Hello")):
        print(event["type"])
    """
    response = await model.respond(request)
    for event in response_events(response.data):
        yield event
