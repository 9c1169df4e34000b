"""A small policy server like NeMo RL's: chat completions with token ids in both directions, strict about sampling.

Generated text and the same text in a rendered prompt have different token ids. A prompt therefore continues the turns
before it only if the client sends back the ids of the latest turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

from servers import Server, send
from waiting import until_async

SAMPLING = {"temperature": 0.7, "top_p": 0.95}
_GENERATED = 1000
_END = 2

Message = dict[str, Any]


class Policy(Server):
    """Calls `increment_counter`, then answers. The words `slow`, `status 429`, `break`, ... change that."""

    slow: ClassVar[Callable[[], bool]] = staticmethod(lambda: False)  #: whether the slow ones have to wait still

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        self.bodies.append(body)
        question = str(body["messages"][0]["content"])
        if path != "/v1/chat/completions":
            return await send(writer, 404, b'{"detail":"Not Found"}')
        if refusal := _refusal(body):
            return await send(writer, 400, json.dumps({"error": {"message": refusal}}).encode())
        for status in ("400", "429", "500"):
            if f"status {status}" in question:
                return await send(writer, int(status), b'{"error":{"message":"as you wish"}}')
        if "hang" in question:
            await asyncio.sleep(3600)
        if "slow" in question:
            await until_async(lambda: not Policy.slow())
        return await send(writer, 200, json.dumps(_answer(body, question)).encode())


def _refusal(body: dict[str, Any]) -> str | None:
    """Why NeMo RL's policy servers would refuse a request; None if they accept it."""
    if {key: body.get(key) for key in SAMPLING} != SAMPLING:
        return f"the sampling must be {SAMPLING}"
    if body.get("top_k", -1) != -1 or body.get("top_logprobs") is None or not body.get("logprobs"):
        return "top_k must be unset, and logprobs must be requested"
    return None


def _answer(body: dict[str, Any], question: str) -> dict[str, Any]:
    messages: list[Message] = body["messages"]
    prompt = _render(messages) if "break" in question else prompt_ids(messages)
    message: Message = {"role": "assistant", "content": None}
    turn = sum(each["role"] == "assistant" for each in messages)
    if turn < (2 if "break" in question else 1) and "no call" not in question:
        called = {"name": "increment_counter", "arguments": json.dumps({"count": 3})}
        message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": called}]
    else:
        message["content"] = "done"
    generated = [_GENERATED + each for each in json.dumps(message).encode()] + [_END]
    logprobs = [-0.001 * number for number, _ in enumerate(generated, start=1)]
    if "no ids" not in question:
        bundle = {"generation_token_ids": generated, "generation_log_probs": logprobs}
        message |= {"prompt_token_ids": prompt, **bundle}
    spelled = [{"token": f"token_id:{each}", "logprob": p} for each, p in zip(generated, logprobs, strict=True)]
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": spelled}}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(generated), "total_tokens": len(prompt + generated)}
    return {"id": "chat_1", "object": "chat.completion", "model": "policy", "choices": [choice], "usage": usage}


def prompt_ids(messages: list[Message]) -> list[int]:
    """The ids of a prompt: those that the latest assistant message carries, then the later messages rendered."""
    for index in reversed(range(len(messages))):
        message = messages[index]
        if message.get("generation_token_ids"):
            before: list[int] = message["prompt_token_ids"] + message["generation_token_ids"]
            return before + _render(messages[index + 1 :])
    return _render(messages)


def _render(messages: list[Message]) -> list[int]:
    plain = [{key: each[key] for key in ("role", "content", "tool_calls") if key in each} for each in messages]
    return [number for each in plain for number in (*json.dumps(each).encode(), _END)]
