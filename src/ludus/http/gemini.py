"""The routes of Gemini's API: `/v1beta/models/NAME:ACTION`, for every server that answers as a model."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from ludus.dialects.gemini import request_from_gemini
from ludus.http.app import Handler
from ludus.http.messages import Incoming, Reply
from ludus.http.replies import gemini_reply
from ludus.response import texts_of

_ROUTE = re.compile(r"/v1(?:alpha|beta)?/models/[^/:]{1,200}:(generateContent|streamGenerateContent|countTokens)")
#: Characters of a token, about: programs ask for counts to decide when to shorten a conversation.
_CHARACTERS = 4

Body = dict[str, Any]


def gemini_handler(incoming: Incoming, answer: Callable[[Incoming, Body], Awaitable[Body]]) -> Handler | None:
    """The handler of a request in Gemini's dialect; None for any other request. `answer` takes a Responses request."""
    match = _ROUTE.fullmatch(incoming.path) if incoming.method == "POST" else None
    if match is None:
        return None
    action = match[1]

    async def handle(incoming: Incoming) -> Reply:
        body = incoming.json()
        if action == "countTokens":
            return Reply.of({"totalTokens": _estimate(body)})
        as_events = b"alt=sse" in (incoming.scope.get("query_string") or b"").split(b"&")
        return gemini_reply(action, as_events, await answer(incoming, request_from_gemini(body)))

    return handle


def _estimate(body: Body) -> int:
    """About how many tokens a conversation has."""
    inner = body.get("generateContentRequest")
    params = request_from_gemini(inner if isinstance(inner, dict) else body)
    texts = [str(params.get("instructions") or "")]
    for item in params["input"]:
        texts.append(str(item.get("arguments") or item.get("output") or "".join(texts_of(item))))
    return -(-sum(map(len, texts)) // _CHARACTERS)
