"""Streams of a model server: the answer is computed whole, and then sent as the events of its dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from ludus.dialects.chat_stream import chat_chunks
from ludus.dialects.messages_stream import message_events
from ludus.dialects.responses_stream import response_events
from ludus.dialects.sse import DONE, encode_event
from nemo_gym._asgi import AsgiApp, BufferedReply, Message, Receive, Send, read_body, replay, with_length

#: The dialect of each path of a model server.
DIALECTS = {"/v1/responses": "responses", "/v1/chat/completions": "chat_completions", "/v1/messages": "messages"}


class StreamedAnswers:
    """Answers a request that asks for a stream. The routes behind it see the request without `stream`."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. An answer that is an error is sent as it is, with its status."""
        dialect = dialect_of(scope)
        if dialect is None:
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        fields = json_object(body)
        if not fields.get("stream"):
            await self._app(scope, replay(body, receive), send)
            return
        asked = orjson.dumps({key: value for key, value in fields.items() if key not in ("stream", "stream_options")})
        reply = BufferedReply()
        await self._app(with_length(scope, asked), replay(asked, receive), reply)
        answer = json_object(reply.body)
        if reply.status != 200 or not answer:
            await reply.pass_on(send)
            return
        replaced = (b"content-length", b"content-type")
        headers = [(name, value) for name, value in reply.headers if name.lower() not in replaced]
        headers += [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in _events(dialect, answer, fields):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def dialect_of(scope: Message) -> str | None:
    """The dialect that a request speaks; None if it is no model call."""
    if scope["type"] != "http" or scope.get("method") != "POST":
        return None
    return DIALECTS.get(scope.get("path", ""))


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; empty if it is no JSON object."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _events(dialect: str, answer: dict[str, Any], asked: dict[str, Any]) -> Iterator[bytes]:
    if dialect == "chat_completions":
        options = asked.get("stream_options")
        usage = bool(isinstance(options, dict) and options.get("include_usage"))
        for chunk in chat_chunks(answer, usage=usage):
            yield encode_event(chunk)
        yield encode_event(DONE)
        return
    for event in response_events(answer) if dialect == "responses" else message_events(answer):
        yield encode_event(event, event["type"])
