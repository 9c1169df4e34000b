"""Offers the tools of a resources server over MCP, at `/mcp` beside its routes.

The reply of `/seed_session` tells a client where: its header carries a signed token with the id of the session, and the
names of the tools that the session may call. A call runs the tool's own route in that session.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym._asgi import (
    AsgiApp,
    BufferedReply,
    Message,
    Receive,
    Send,
    header,
    read_body,
    replay,
    with_length,
)
from nemo_gym._mcp_endpoint import ToolEndpoint, tool_result
from nemo_gym._mcp_harvest import MCPTool, as_tools, harvest
from nemo_gym._mcp_names import NEMO_GYM_MCP_METADATA_KEY, NEMO_GYM_MCP_SESSION_TOKEN_HEADER, MCPServerMetadata
from nemo_gym._simple_server import SESSION_ID_KEY, SESSION_SCOPE_KEY, own_middleware
from nemo_gym.rollout_correlation import RolloutContextMiddleware

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("nemo_gym")

__all__ = ["MCPTool", "maybe_auto_expose"]

_PATH = "/mcp"
_TOKEN_HEADER = NEMO_GYM_MCP_SESSION_TOKEN_HEADER.lower().encode()


def maybe_auto_expose(server: Any, app: FastAPI) -> None:
    """Offer the tools of `server` over MCP, if its setting `expose_tools_over_mcp` says so.

    `ValueError` if the application has middleware of its own, a route at `/mcp`, several catch-all routes, or a tool
    whose name or arguments MCP cannot express.
    """
    if not getattr(server.config, "expose_tools_over_mcp", False):
        return
    from starlette.middleware import Middleware
    from starlette.routing import Route

    _refuse_foreign(app)
    tools, catch_all = harvest(app)
    host = _Tools(server, app, as_tools(server.mcp_tools(tools, catch_all)))
    for path in (f"{_PATH}/", _PATH):
        app.router.routes.insert(0, Route(path, endpoint=ToolEndpoint(host), include_in_schema=False))
    inside: Any = _Sessions
    app.user_middleware.append(Middleware(inside, host=host))  # behind the sessions


def _refuse_foreign(app: FastAPI) -> None:
    known = {*own_middleware(), RolloutContextMiddleware}
    foreign = [getattr(each.cls, "__name__", str(each.cls)) for each in app.user_middleware if each.cls not in known]
    if foreign:
        raise ValueError(f"tools over MCP cannot pass the middleware {foreign[0]}: remove it or expose_tools_over_mcp")
    if any(getattr(route, "path", "").rstrip("/") == _PATH for route in app.routes):
        raise ValueError(f"the application has a route {_PATH} of its own: rename it or remove expose_tools_over_mcp")


class _Tools:
    """The tools of one server, and the tokens of its sessions."""

    def __init__(self, server: Any, app: FastAPI, tools: dict[str, MCPTool]) -> None:
        from itsdangerous import URLSafeSerializer

        self.server = server
        self.name = server.config.name or type(server).__name__
        self._app = app
        self._tools = tools
        self._signer = URLSafeSerializer(secrets.token_hex(32), salt="nemo-gym-mcp")

    async def metadata(self, session_id: str, seed: Any) -> dict[str, Any]:
        """How a session's tools are reached."""
        allowed = self.server.mcp_allowed_tools_for_session(seed)
        if inspect.isawaitable(allowed):
            allowed = await allowed
        token = self._signer.dumps({"sid": session_id, "tools": None if allowed is None else list(allowed)})
        headers = {NEMO_GYM_MCP_SESSION_TOKEN_HEADER: str(token)}
        return MCPServerMetadata(server_name=self.name, headers=headers).model_dump()

    def list_tools(self, scope: Message) -> list[dict[str, Any]]:
        """The tools that the request's token allows; all without a token."""
        allowed = (self._claims(scope) or {}).get("tools")
        return [tool.as_json() for name, tool in self._tools.items() if allowed is None or name in allowed]

    async def call_tool(self, scope: Message, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The reply of the tool's route, called in the session of the request's token."""
        if header(scope, _TOKEN_HEADER) is None:
            where = f"POST /seed_session returns the header {NEMO_GYM_MCP_SESSION_TOKEN_HEADER}"
            return tool_result(f"the session token is missing: {where}", failed=True)
        claims = self._claims(scope)
        if claims is None:
            return tool_result("the session token is not valid: seed a new session", failed=True)
        if name not in self._tools:
            known = ", ".join(self._tools)
            return tool_result(f"there is no tool {name[:100]!r}: the tools are {known}", failed=True)
        if claims["tools"] is not None and name not in claims["tools"]:
            return tool_result(f"tool {name!r} is not allowed in this session", failed=True)
        status, text = await self._post(scope, name, arguments, claims["sid"])
        if status >= 400:
            return tool_result(f"HTTP {status} from POST /{name}: {_detail(text)}", failed=True)
        return tool_result(text)

    async def _post(self, scope: Message, name: str, arguments: dict[str, Any], session_id: str) -> tuple[int, str]:
        """Send the arguments to the tool's route of this application."""
        body = orjson.dumps(arguments)
        path = f"/{name}"  # a name of the table, which holds no other characters than those of a name
        inner = {
            key: scope[key] for key in ("type", "asgi", "http_version", "scheme", "client", "server") if key in scope
        }
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        inner |= {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
        inner |= {"headers": headers, SESSION_SCOPE_KEY: session_id}
        reply = BufferedReply()
        app: Any = self._app
        try:
            await app(with_length(inner, body), replay(body, _nothing_more), reply)
        except Exception as error:
            log.warning("tool %s of %s failed over MCP: %r", name, self.name, error)
            return 500, repr(error)
        return reply.status, reply.body.decode("utf-8", "replace")

    def _claims(self, scope: Message) -> dict[str, Any] | None:
        from itsdangerous import BadData

        try:
            claims: dict[str, Any] = self._signer.loads(header(scope, _TOKEN_HEADER) or "")
        except BadData:
            return None
        return claims


class _Sessions:
    """Adds the metadata to the reply of `/seed_session`, and lets `verify` see the tools' own names."""

    def __init__(self, app: AsgiApp, host: _Tools) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = {"/seed_session": self._seed, "/verify": self._verify}.get(scope.get("path", ""))
        if handler is None or scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        reply = BufferedReply()
        await handler(scope, await read_body(receive), receive, reply)
        await reply.pass_on(send)

    async def _seed(self, scope: Message, body: bytes, receive: Receive, reply: BufferedReply) -> None:
        await self._app(scope, replay(body, receive), reply)
        answer = _object(reply.body)
        if reply.status != 200 or answer is None:
            return
        asked = _object(body) or {}
        typed = "resources_session_id" in asked and "resources_session_id" in answer
        seed = asked.get("task_data") if typed else asked
        key = "resources_tools" if typed else NEMO_GYM_MCP_METADATA_KEY
        reply.replace({**answer, key: await self._host.metadata(scope["session"][SESSION_ID_KEY], seed)})

    async def _verify(self, scope: Message, body: bytes, receive: Receive, reply: BufferedReply) -> None:
        asked = _object(body) or {}
        names = {}
        for index, item in _calls(asked):
            bare = self._host.server.normalize_tool_name(item["name"])
            if bare != item["name"]:
                names[index], item["name"] = item["name"], bare
        if not names:
            await self._app(scope, replay(body, receive), reply)
            return
        changed = orjson.dumps(asked)
        await self._app(with_length(scope, changed), replay(changed, receive), reply)
        answer = _object(reply.body)
        if answer is None:
            return
        for index, item in _calls(answer):
            item["name"] = names.get(index, item["name"])
        reply.replace(answer)


async def _nothing_more() -> Message:
    """Wait until the caller is cancelled: the client of this request is this process, which stays connected."""
    never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return await never


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _calls(row: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The function calls of a row's response, with their places in the output."""
    response = row.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    return [
        (index, item)
        for index, item in enumerate(output if isinstance(output, list) else ())
        if isinstance(item, dict) and item.get("type") == "function_call" and isinstance(item.get("name"), str)
    ]


def _detail(text: str) -> str:
    """What a reply says about its error."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    detail = value.get("detail", value) if isinstance(value, dict) else value
    return detail if isinstance(detail, str) else orjson.dumps(detail).decode()
