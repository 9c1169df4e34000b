"""A model's response as an HTTP reply in each of the four dialects, whole or streamed."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any
from uuid import uuid4

from ludus.dialects.chat_answer import answer_to_chat
from ludus.dialects.chat_stream import chat_chunks
from ludus.dialects.errors import Dialect, error_event
from ludus.dialects.gemini_answer import answer_to_gemini, gemini_chunks
from ludus.dialects.messages_answer import answer_to_messages
from ludus.dialects.messages_stream import message_events
from ludus.dialects.responses_stream import response_events
from ludus.dialects.sse import encode_event
from ludus.dialects.usage import complete_usage
from ludus.errors import Failure
from ludus.http.messages import EVENTS, Reply
from ludus.response import Response
from ludus.runtime.encoding import encode
from ludus.runtime.keys import without_keys_and_paths
from ludus.token_fields import put_tokens

log = logging.getLogger("ludus.serve")

#: The fields of a request that are not passed to the model as parameters.
TRANSPORT = ("input", "model", "stream", "stream_options", "background", "store")
#: The dialects whose stream events have names.
_NAMED_EVENTS = ("responses", "messages")


def envelope(response: Response, body: dict[str, Any], name: str, *, tokens: bool) -> dict[str, Any]:
    """The response with every field that clients of the Responses API require, and token ids if `tokens`."""
    data = {
        "object": "response",
        "status": "completed",
        "incomplete_details": None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": body.get("temperature"),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        **response.data,
        "output": list(response.output),
    }
    if not isinstance(data.get("id"), str) or data["id"] in ("", "resp_0"):
        data["id"] = f"resp_{uuid4().hex}"
    data["created_at"] = data.get("created_at") or int(time.time())
    data["model"] = data.get("model") or name
    data["usage"] = complete_usage(response.usage) if response.usage else None
    if tokens and response.tokens is not None:
        put_tokens(data["output"], response.tokens)
    return data


def responses_reply(body: dict[str, Any], response: dict[str, Any]) -> Reply:
    """The response as a reply of the Responses API."""
    if body.get("stream"):
        return _streamed("responses", response_events(response))
    return Reply(encode(response))


def chat_reply(body: dict[str, Any], response: dict[str, Any]) -> Reply:
    """The response as a reply of Chat Completions."""
    completion = _converted(answer_to_chat, response)
    if not body.get("stream"):
        return Reply(encode(completion))
    options = body.get("stream_options")
    usage = bool(isinstance(options, dict) and options.get("include_usage"))
    return _streamed("chat", chat_chunks(completion, usage=usage), end=b"data: [DONE]\n\n")


def messages_reply(body: dict[str, Any], response: dict[str, Any]) -> Reply:
    """The response as a reply of Anthropic Messages."""
    message = _converted(answer_to_messages, response)
    if body.get("stream"):
        return _streamed("messages", message_events(message))
    return Reply(encode(message))


def gemini_reply(response: dict[str, Any], *, streams: bool, as_events: bool) -> Reply:
    """The response as a reply of Gemini's `generateContent` or `streamGenerateContent`: events, or a list of chunks."""
    answer = _converted(answer_to_gemini, response)
    if not streams:
        return Reply(encode(answer))
    if as_events:
        return _streamed("gemini", gemini_chunks(answer))
    return Reply(encode(list(gemini_chunks(answer))))


def _converted(convert: Callable[[dict[str, Any]], dict[str, Any]], response: dict[str, Any]) -> dict[str, Any]:
    """The response in another dialect. If it cannot be converted, the failure is the model's, not the client's."""
    try:
        return convert(response)
    except Failure as error:
        raise Failure("bad_response", error.cause, stage="model") from error


def _streamed(dialect: Dialect, events: Iterable[dict[str, Any]], end: bytes = b"") -> Reply:
    """A stream of events. Where one cannot be made, the stream ends with an error, and the client knows."""

    async def pieces() -> AsyncIterator[bytes]:
        number = 0
        try:
            for event in events:
                yield encode_event(event, event["type"] if dialect in _NAMED_EVENTS else None)
                number += 1
        except Exception as error:
            failure = Failure.of(error, "model")
            log.error("a streamed answer failed: %s", without_keys_and_paths(failure.cause))
            event = error_event(dialect, without_keys_and_paths(failure.cause), number, kind=failure.kind)
            yield encode_event(event, "error" if dialect in _NAMED_EVENTS else None)
            return
        if end:
            yield end

    return Reply(kind=EVENTS, headers=[(b"cache-control", b"no-cache")], pieces=pieces())
