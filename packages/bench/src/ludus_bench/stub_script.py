"""The answers of the stub model server, encoded as HTTP.

`FixedScript` has every answer encoded before the first request arrives; a request costs a `bytes.count` over its body.
The turn is the number of tool outputs in the body, counted as the byte strings `"function_call_output"` (Responses) or
`"role":"tool"` (Chat, or with a space after the colon). This assumes that no other JSON string is exactly that word; a
text that quotes it does not match, because JSON escapes the quotes. `SyntheticScript` parses the request and calls the
tools in it. There is no streaming.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import orjson

from ludus_bench.profile.synthetic import callable_tools, synthetic_items

_RESPONSES, _CHAT = b"/v1/responses", b"/v1/chat/completions"

#: How many different answers are kept encoded.
_MOST_ANSWERS = 4096


class StubScript(Protocol):
    """Decides what the server answers."""

    def answer(self, method: bytes, path: bytes, body: bytes) -> bytes | None:
        """The model's encoded answer; None for any other route."""


def http_answer(status: str, body: dict[str, Any]) -> bytes:
    """A whole HTTP answer with a JSON body."""
    payload = json.dumps(body, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def responses_answer(turn: int, item: dict[str, Any]) -> dict[str, Any]:
    """A Responses API object with one output item."""
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "stub",
        "output": [item],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 20 * (turn + 1),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20 * (turn + 1) + 10,
        },
    }


def chat_answer(turn: int, message: dict[str, Any], finish_reason: str) -> dict[str, Any]:
    """A Chat Completions object with one choice."""
    return {
        "id": f"chatcmpl_{turn}",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": 20 * (turn + 1),
            "completion_tokens": 10,
            "total_tokens": 20 * (turn + 1) + 10,
        },
    }


def add_tokens(answers: list[dict[str, Any]], tokens: int) -> None:
    """Put token ids on each answer: half of `tokens` are generated, the other half are the tool output."""
    half = tokens // 2
    for turn, answer in enumerate(answers):
        prompt = [(7 * place) % 49_152 for place in range(half + tokens * turn)]
        written = [(7 * place) % 49_152 for place in range(len(prompt), len(prompt) + half)]
        logprobs = [round(-0.001 * (place % 997), 6) for place in range(half)]
        bundle = {"prompt_token_ids": prompt, "generation_token_ids": written, "generation_log_probs": logprobs}
        answer["output"][-1].update(bundle)


class FixedScript:
    """All answers of the server, already encoded, indexed by the number of tool outputs in the request."""

    def __init__(self, turns: int, tool: str, arguments: str, text: str, tokens: int = 0) -> None:
        self.turns = turns
        responses, chat = [], []
        for turn in range(turns):
            call = {"call_id": f"call_{turn}", "name": tool, "arguments": arguments}
            item = {"type": "function_call", "id": f"fc_{turn}", **call, "status": "completed"}
            responses.append(responses_answer(turn, item))
            function = {"name": tool, "arguments": arguments}
            tool_call = {"id": f"call_{turn}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [tool_call]}
            chat.append(chat_answer(turn, message, "tool_calls"))
        content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
        said = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
        responses.append(responses_answer(turns, said))
        chat.append(chat_answer(turns, {"role": "assistant", "content": text}, "stop"))
        if tokens:
            add_tokens(responses, tokens)
        self._responses = [http_answer("200 OK", answer) for answer in responses]
        self._chat = [http_answer("200 OK", answer) for answer in chat]

    def answer(self, method: bytes, path: bytes, body: bytes) -> bytes | None:
        """The model's encoded answer; None for any other route."""
        if method == b"POST" and path == _RESPONSES:
            outputs = body.count(b'"function_call_output"')
            return self._responses[min(outputs, self.turns)]
        if method == b"POST" and path == _CHAT:
            outputs = body.count(b'"role":"tool"') + body.count(b'"role": "tool"')
            return self._chat[min(outputs, self.turns)]
        return None


class SyntheticScript:
    """Calls every tool that the request offers once in each of the first `turns` turns, then answers with a text."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._encoded: dict[tuple[bytes, int], bytes] = {}

    def answer(self, method: bytes, path: bytes, body: bytes) -> bytes | None:
        """The model's encoded answer; None for any other route."""
        if method != b"POST" or path != _RESPONSES:
            return None
        try:
            asked = orjson.loads(body)
            tools, items = asked.get("tools"), asked["input"]
            outputs = sum(item.get("type") == "function_call_output" for item in items)
        except (ValueError, TypeError, KeyError, AttributeError):
            return http_answer("400 Bad Request", {"error": {"message": "not a request of the Responses API"}})
        calls = len(callable_tools(tools))
        turn = outputs // calls if calls else 0
        key = orjson.dumps(tools) if turn < self._turns else b"", turn
        encoded = self._encoded.get(key)
        if encoded is None:
            output = synthetic_items(tools if turn < self._turns else None, turn)
            encoded = http_answer("200 OK", {**responses_answer(turn, {}), "output": output})
            if len(self._encoded) < _MOST_ANSWERS:
                self._encoded[key] = encoded
        return encoded
