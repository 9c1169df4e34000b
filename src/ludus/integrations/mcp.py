"""Resources whose tools are on an MCP server.

    class Weather(McpResources):
        class Config(McpResources.Config):
            url: str = "http://127.0.0.1:8000/mcp"

        async def verify(self, task: Task, response: Response) -> float:
            return float("sunny" in response.output_text)

Each rollout opens and closes an MCP session. The model can call the server's tools, or only those that the row lists.
The model sees the server's answers, also errors. If the connection to the server breaks, the rollout fails in the
current stage.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson

import ludus
from ludus.errors import Failure, UserError, missing_extra
from ludus.integrations.mcp_servers import HttpServer, McpServer, StdioServer
from ludus.integrations.mcp_session import McpSession
from ludus.resources import Resources, ResourcesConfig
from ludus.runtime.encoding import encode
from ludus.runtime.keys import look_up_key, redacted
from ludus.tools import error_text, not_found

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # the tool names that the Responses API accepts
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_NO_LOG = logging.NullHandler()
_SECRET = re.compile(r"\$\{(\w+)\}")


class McpResources(Resources):
    """Base class of environments whose tools are on an MCP server. Override `verify`, which may use `call_server`.

    Override `tools` to hide tools from the model. Override `servers` for several servers, or for a different server in
    each rollout. A subclass may have `@tool` methods too.
    """

    class Task(ludus.Task):
        """A row. An empty `tools` list means all tools, since rows for MCP leave the tools to the server."""

        @property
        def tools(self) -> list[dict[str, Any]] | None:
            """The tools that this row lists; None, which means all tools, if it lists none."""
            return super().tools or None

    class Config(ResourcesConfig):
        """How to reach the server: a `url`, or a `command` to start for each rollout."""

        #: A streamable HTTP URL. ${NAME} in `url`, `headers` and `env` is a key from the environment or env.yaml.
        url: str = ""
        #: headers of every request to `url`
        headers: dict[str, str] = {}
        #: A program and its arguments, started without a shell. It gets only the environment variables in `env`.
        command: list[str] = []
        #: the environment variables of `command`
        env: dict[str, str] = {}

    config: Config
    shared: McpServer

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._sessions: list[McpSession] = []
        self._listed: dict[str, tuple[McpSession, Tool]] = {}
        self._keys: tuple[str, ...] = ()

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """The server that the settings describe, with `${NAME}` replaced by the keys.

        None if the settings describe none and the class makes its own in `servers`.
        """
        require_mcp()
        own = cls.servers is not McpResources.servers and not (config.url or config.command)
        yield None if own else server_of(config)

    async def servers(self, task: Any) -> dict[str, McpServer]:
        """The servers of this rollout, by the prefix of their tools' names.

        The default is the server of the settings, without a prefix.
        """
        return {"": self.shared}

    async def open(self, task: Any) -> None:
        """Open a session with each server and list its tools. A subclass that overrides this must call it."""
        for prefix, server in (await self.servers(task)).items():
            session = McpSession(server)
            self._sessions.append(session)
            self._keys += server.keys
            for entry in await session.start():
                self._list(f"{prefix}{entry.name}", entry, session, server)

    async def close(self) -> None:
        """Close the sessions. A subclass that overrides this must call it."""
        await asyncio.gather(*(session.stop() for session in self._sessions))

    def tools(self) -> list[dict[str, Any]]:
        """The tools of this class and of the servers, with the servers' own schemas."""
        return [*super().tools(), *(_description(name, entry) for name, (_, entry) in self._listed.items())]

    async def call(self, name: str, arguments: str) -> str:
        """Run a tool of this class or of a server, with the arguments that the model wrote."""
        if name in self.toolbox:
            return await super().call(name, arguments)
        if name not in self._listed:
            return not_found()
        try:
            values = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError as error:
            return error_text(f"Invalid tool call arguments: {error}")
        if not isinstance(values, dict):
            return error_text("Invalid tool call arguments: they must be an object")
        try:
            result = await self.call_server(name, values)
        except Failure:
            raise
        except Exception as error:
            message = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
            return error_text(redacted(message, *self._keys))
        shown = redacted(text_of(result), *self._keys)
        return error_text(shown) if result.is_error else shown

    async def call_server(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """The SDK's result of a call to a server. Tools that are hidden from the model can be called too."""
        if name not in self._listed:
            raise Failure("disconnected", f"no open MCP session has a tool {name!r:.80}")
        session, entry = self._listed[name]
        return await session.call(entry.name, arguments)

    def _list(self, full_name: str, entry: Tool, session: McpSession, server: McpServer) -> None:
        """Register a tool under a name that the Responses API accepts."""
        name = _NOT_IN_A_NAME.sub("_", full_name)
        if not _NAME.fullmatch(name) or name in self._listed or name in self.toolbox:
            why = "is already taken" if _NAME.fullmatch(name) else "is longer than 64 characters, or empty"
            raise Failure("bad_tools", f"{server.name}: the name of the tool {full_name!r:.100} {why}")
        self._listed[name] = (session, entry)


def require_mcp() -> None:
    """Raise a `UserError` if the extra `mcp` is not installed."""
    try:
        import httpx2  # noqa: F401
        import mcp  # noqa: F401
    except ImportError as error:
        raise missing_extra("MCP", "mcp") from error


def server_of(config: McpResources.Config) -> McpServer:
    """The server that the settings describe. Raises a `UserError` for wrong settings."""
    require_mcp()
    import httpx2

    logging.getLogger("mcp").addHandler(_NO_LOG)  # our failures already say what the SDK would log
    if bool(config.url) == bool(config.command):
        hint = "Set one of them: --set resources.url=http://HOST/mcp, or --set resources.command=[PROGRAM, ARGUMENT]"
        raise UserError(f"an MCP server has a url or a command, not {'both' if config.url else 'neither'}", hint)
    keys: list[str] = []
    if config.command:
        env = {name: _filled_in(value, keys) for name, value in config.env.items()}
        if any(map(_SECRET.search, config.command)):
            why = "every user of this machine can read a process's command line"
            raise UserError(f"resources.command must not hold a key: {why}", "Put the key into resources.env")
        return StdioServer(config.command, " ".join(config.command), env, tuple(keys))
    if not config.url.startswith(("http://", "https://")):
        raise UserError(f"resources.url={config.url!r:.80} must begin with http:// or https://")
    headers = {name: _filled_in(value, keys) for name, value in config.headers.items()}
    url = _filled_in(config.url, keys)
    return HttpServer(url, config.url, headers, tuple(keys), httpx2.create_ssl_context())


def text_of(result: CallToolResult) -> str:
    """The text of a result for the model: its texts, or without any its structured content as JSON."""
    lines = [_line(part) for part in result.content]
    if result.structured_content is not None and not any(_is_text(part) for part in result.content):
        lines.insert(0, encode(result.structured_content).decode())
    return "\n".join(lines)


def _is_text(part: Any) -> bool:
    return part.type == "text" or (part.type == "resource" and hasattr(part.resource, "text"))


def _line(part: Any) -> str:
    """One part of a result: its text, or else its kind and size."""
    if part.type == "text":
        return str(part.text)
    if part.type == "resource_link":
        return f"[resource {part.uri}]"
    if part.type == "resource":
        return str(getattr(part.resource, "text", f"[resource {part.resource.uri}]"))
    size = len(part.data) * 3 // 4 - part.data[-2:].count("=")
    return f"[{part.type}, {part.mime_type}, {size} bytes]"


def _description(name: str, entry: Tool) -> dict[str, Any]:
    """A server's tool in the format of the Responses API."""
    return {
        "type": "function",
        "name": name,
        "description": entry.description or "",
        "parameters": entry.input_schema,
        "strict": False,
    }


def _filled_in(text: str, keys: list[str]) -> str:
    """The text with each ${NAME} replaced by its key. The keys are added to `keys`, to be redacted later."""

    def key(named: re.Match[str]) -> str:
        value = look_up_key(named[1])
        if not value:
            hint = f"Set the environment variable {named[1]}, or {named[1]} in env.yaml"
            raise UserError(f"the settings of the MCP server use the key {named[1]}, which is not set", hint)
        keys.append(value)
        return value

    return _SECRET.sub(key, text)
