"""A model server that gives one short answer on the routes of the Responses API, Chat Completions and Azure."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from servers import Server, send

ANSWER = r"The answer is \boxed{B}."


class ModelStub(Server):
    """Answers every request at once, whatever the model's name, the key and the API version are."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        self.bodies.append(body)
        if path.partition("?")[0].endswith("/chat/completions"):
            return await send(writer, 200, orjson.dumps(_chat()))
        return await send(writer, 200, orjson.dumps(_response()))


def _chat() -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "model": "stub",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def _response() -> dict[str, Any]:
    part = {"type": "output_text", "text": ANSWER, "annotations": []}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    return {"id": "resp_1", "model": "stub", "status": "completed", "output": [said], "usage": usage}
