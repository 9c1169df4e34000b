"""A policy as NeMo RL serves it, in small: chat with token ids in both directions, and strict about sampling.

Its tokenizer is one that a template breaks: what it generates has other ids than the same text has when it is rendered
again. So a prompt continues the turns before it only where the client gave back the ids of the latest one.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from servers import Server, send

SAMPLING = {"temperature": 0.7, "top_p": 0.95}
_GENERATED = 1000
_END = 2

Message = dict[str, Any]


class Policy(Server):
    """Calls `increment_counter`, then answers. A user who writes `slow`, `status 429`, `break`, ... gets that."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        self.bodies.append(body)
        asked = str(body["messages"][0]["content"])
        if path != "/v1/chat/completions":
            return await send(writer, 404, b'{"detail":"Not Found"}')
        if wrong := _refused(body):
            return await send(writer, 400, json.dumps({"error": {"message": wrong}}).encode())
        for status in ("400", "429", "500"):
            if f"status {status}" in asked:
                return await send(writer, int(status), b'{"error":{"message":"as you wish"}}')
        if "hang" in asked:
            await asyncio.sleep(3600)
        if "slow" in asked:
            await asyncio.sleep(0.4)
        return await send(writer, 200, json.dumps(_answer(body, asked)).encode())


def _refused(body: dict[str, Any]) -> str | None:
    """What NeMo RL's policy servers refuse."""
    if {key: body.get(key) for key in SAMPLING} != SAMPLING:
        return f"the sampling must be {SAMPLING}"
    if body.get("top_k", -1) != -1 or body.get("top_logprobs") is None or not body.get("logprobs"):
        return "top_k must be unset, and log probabilities asked for"
    return None


def _answer(body: dict[str, Any], asked: str) -> dict[str, Any]:
    messages: list[Message] = body["messages"]
    prompt = _render(messages) if "break" in asked else prompt_ids(messages)
    message: Message = {"role": "assistant", "content": None}
    turn = sum(each["role"] == "assistant" for each in messages)
    if turn < (2 if "break" in asked else 1) and "no call" not in asked:
        called = {"name": "increment_counter", "arguments": json.dumps({"count": 3})}
        message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": called}]
    else:
        message["content"] = "done"
    written = [_GENERATED + each for each in json.dumps(message).encode()] + [_END]
    logprobs = [-0.001 * number for number, _ in enumerate(written, start=1)]
    if "no ids" not in asked:
        bundle = {"generation_token_ids": written, "generation_log_probs": logprobs}
        message |= {"prompt_token_ids": prompt, **bundle}
    spelled = [{"token": f"token_id:{each}", "logprob": p} for each, p in zip(written, logprobs, strict=True)]
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": spelled}}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(written), "total_tokens": len(prompt + written)}
    return {"id": "chat_1", "object": "chat.completion", "model": "policy", "choices": [choice], "usage": usage}


def prompt_ids(messages: list[Message]) -> list[int]:
    """The ids of a prompt: those of the latest assistant message that brings its own, then the rest rendered."""
    for index in reversed(range(len(messages))):
        message = messages[index]
        if message.get("generation_token_ids"):
            before: list[int] = message["prompt_token_ids"] + message["generation_token_ids"]
            return before + _render(messages[index + 1 :])
    return _render(messages)


def _render(messages: list[Message]) -> list[int]:
    plain = [{key: each[key] for key in ("role", "content", "tool_calls") if key in each} for each in messages]
    return [number for each in plain for number in (*json.dumps(each).encode(), _END)]
