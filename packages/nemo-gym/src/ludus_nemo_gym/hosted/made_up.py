"""Calls of tools that a model made up.

Agents send a model's call to `/NAME` of the resources, whatever the name is. A model that was not offered
`seed_session` could begin its session anew in its favour, so such a call must not arrive.
"""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote

import orjson

from ludus.http.app import ROLLOUT_PREFIX
from ludus.http.messages import Incoming, Refusal

#: Routes that agents call themselves. Only a body that holds what the model said makes a request the model's.
_OF_AGENTS = frozenset(
    "/seed_session /verify /close_session /reset /step /aggregate_metrics /reverify_mode /mcp /run "
    "/v1/responses /v1/chat/completions /v1/messages".split()
)


class MadeUpCalls:
    """The calls of one rollout's model that no tool of its requests answers to."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, Any]] = {}  # the path and the arguments of each call, by its id

    def note(self, tools: Any, answer: dict[str, Any]) -> None:
        """Keep the calls of an answer whose request did not offer them."""
        offered = {tool.get("name") for tool in tools or () if isinstance(tool, dict)}
        for item in answer.get("output") or ():
            if item.get("type") == "function_call" and (name := item.get("name")) not in offered:
                self._calls[str(item.get("call_id"))] = _plain(f"/{name}"), _parsed(item.get("arguments"))

    def refuse(self, incoming: Incoming) -> None:
        """Refuse a request with which an agent passes such a call on. The agent keeps its cookies."""
        if not self._calls:
            return
        prefix = "" if incoming.rollout is None else f"{ROLLOUT_PREFIX}{incoming.rollout}"
        paths, body = {_plain(incoming.path), _plain(prefix + incoming.path)}, _parsed(incoming.body)
        for key, (path, arguments) in self._calls.items():
            if path in paths and (body == arguments or incoming.path not in _OF_AGENTS):
                del self._calls[key]
                refusal = Refusal(404, "Not Found")
                refusal.headers += [(b"set-cookie", cookie + b"; Path=/") for cookie in _cookies(incoming)]
                raise refusal


def _plain(path: str) -> str:
    """A path without a query, escapes and detours, as the most forgiving server understands it."""
    while (decoded := unquote(path)) != path:
        path = decoded
    path = path.partition("?")[0].partition("#")[0]
    return posixpath.normpath("/" + path.lstrip("/"))


def _parsed(content: Any) -> Any:
    try:
        return orjson.loads(content or b"{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}


def _cookies(incoming: Incoming) -> list[bytes]:
    lines = [value for name, value in incoming.scope["headers"] if name == b"cookie"]
    return [part.strip() for line in lines for part in line.split(b";") if b"=" in part]
