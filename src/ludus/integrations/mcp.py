"""Any MCP server as the resources of a rollout.

    class Weather(McpResources):
        class Config(McpResources.Config):
            url: str = "http://127.0.0.1:8000/mcp"

        async def verify(self, task: Task, response: Response) -> float:
            return float("sunny" in response.output_text)

Every rollout has a session of its own, opened and closed with it. The model is offered the tools that the server lists
(or those of them that its row lists) and may call nothing else. What a server answers, errors included, is shown to the
model; a server that is gone fails the rollout in the stage that found out.
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
from ludus.integrations.mcp_servers import HttpServer, Server, StdioServer
from ludus.integrations.mcp_session import Session
from ludus.resources import Resources, ResourcesConfig
from ludus.runtime.encoding import encode
from ludus.runtime.keys import redacted, secret
from ludus.tools import error_text, not_found

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what the Responses API takes
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_QUIET = logging.NullHandler()
_SECRET = re.compile(r"\$\{(\w+)\}")


class McpResources(Resources):
    """Base of environments whose tools are on an MCP server. Override `verify`; `call_server` is there for it.

    Override `tools` to hide some from the model, and `servers` where there are several, or where each rollout needs one
    of its own. A subclass may have `@tool` methods too.
    """

    class Task(ludus.Task):
        """A row. Data for MCP lists no tools, because an agent finds them on the server: so does this one."""

        @property
        def tools(self) -> list[dict[str, Any]] | None:
            """The tools this row offers; None, which means all of them, when it lists none."""
            return super().tools or None

    class Config(ResourcesConfig):
        """Where the server is: a `url`, or a `command` to start for each rollout."""

        #: Streamable HTTP. In this, `headers` and `env`, ${NAME} stands for a key from the environment or env.yaml.
        url: str = ""
        headers: dict[str, str] = {}
        #: A program and its arguments, started without a shell. It sees of our environment only what `env` passes on.
        command: list[str] = []
        env: dict[str, str] = {}

    config: Config
    shared: Server

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._sessions: list[Session] = []
        self._listed: dict[str, tuple[Session, Tool]] = {}
        self._keys: tuple[str, ...] = ()

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """The server of the settings, with its keys filled in."""
        yield server_of(config)

    async def servers(self, task: Any) -> dict[str, Server]:
        """The servers that this rollout speaks to, by what the names of their tools begin with.

        By default that is the server of the settings, whose tools keep their names.
        """
        return {"": self.shared}

    async def open(self, task: Any) -> None:
        """Begin a session with each server and learn its tools. A subclass that overrides this calls it."""
        for prefix, server in (await self.servers(task)).items():
            session = Session(server)
            self._sessions.append(session)
            self._keys += server.keys
            for entry in await session.start():
                self._list(f"{prefix}{entry.name}", entry, session, server)

    async def close(self) -> None:
        """End the sessions. A subclass that overrides this calls it."""
        await asyncio.gather(*(session.stop() for session in self._sessions))

    def tools(self) -> list[dict[str, Any]]:
        """The tools of this class and those of the servers, with the schemas that they give them."""
        return [*super().tools(), *(_described(name, entry) for name, (_, entry) in self._listed.items())]

    async def call(self, name: str, arguments: str) -> str:
        """Run a tool, here or on a server, with the arguments the model wrote."""
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
        """What a server answers to a call, as the SDK has it. Tools that are hidden from the model can be called."""
        if name not in self._listed:
            raise Failure("disconnected", f"no session has a tool {name!r:.80}")
        session, entry = self._listed[name]
        return await session.call(entry.name, arguments)

    def _list(self, full_name: str, entry: Tool, session: Session, server: Server) -> None:
        """Note a tool under a name that a model can call."""
        name = _NOT_IN_A_NAME.sub("_", full_name)
        if not _NAME.fullmatch(name) or name in self._listed or name in self.toolbox:
            why = "is taken" if _NAME.fullmatch(name) else "cannot be called by a model"
            raise Failure("bad_tools", f"{server.name}: the name of the tool {full_name!r:.100} {why}")
        self._listed[name] = (session, entry)


def server_of(config: McpResources.Config) -> Server:
    """The server that settings describe. What is wrong with them is a user's mistake, told before anything runs."""
    try:
        import httpx2
        import mcp  # noqa: F401
    except ImportError as error:
        raise missing_extra("MCP", "mcp") from error

    logging.getLogger("mcp").addHandler(_QUIET)  # what it has to say, failures say too
    if bool(config.url) == bool(config.command):
        hint = "Set one of them: --set resources.url=http://HOST/mcp, or --set resources.command=[PROGRAM, ARGUMENT]"
        raise UserError(f"an MCP server has a url or a command, not {'both' if config.url else 'neither'}", hint)
    keys: list[str] = []
    if config.command:
        env = {name: _filled_in(value, keys) for name, value in config.env.items()}
        if any(map(_SECRET.search, config.command)):
            raise UserError("a key in resources.command could be read by anybody on this machine", "Use resources.env")
        return StdioServer(config.command, " ".join(config.command), env, tuple(keys))
    if not config.url.startswith(("http://", "https://")):
        raise UserError(f"resources.url={config.url!r:.80} must begin with http:// or https://")
    headers = {name: _filled_in(value, keys) for name, value in config.headers.items()}
    url = _filled_in(config.url, keys)
    return HttpServer(url, config.url, headers, tuple(keys), httpx2.create_ssl_context())


def text_of(result: CallToolResult) -> str:
    """A result as the model reads it: its texts, or its structure as JSON where it has none; the rest is noted."""
    lines = [_line(part) for part in result.content]
    if result.structured_content is not None and not any(_is_text(part) for part in result.content):
        lines.insert(0, encode(result.structured_content).decode())
    return "\n".join(lines)


def _is_text(part: Any) -> bool:
    return part.type == "text" or (part.type == "resource" and hasattr(part.resource, "text"))


def _line(part: Any) -> str:
    """One part of a result; what is no text is named with its kind and size."""
    if part.type == "text":
        return str(part.text)
    if part.type == "resource_link":
        return f"[resource {part.uri}]"
    if part.type == "resource":
        return str(getattr(part.resource, "text", f"[resource {part.resource.uri}]"))
    size = len(part.data) * 3 // 4 - part.data[-2:].count("=")
    return f"[{part.type}, {part.mime_type}, {size} bytes]"


def _described(name: str, entry: Tool) -> dict[str, Any]:
    """A tool of the server as the Responses API describes it."""
    return {
        "type": "function",
        "name": name,
        "description": entry.description or "",
        "parameters": entry.input_schema,
        "strict": False,
    }


def _filled_in(text: str, keys: list[str]) -> str:
    """A text with the keys that it names; they are noted, so that they can be kept out of what is shown."""

    def key(named: re.Match[str]) -> str:
        found = secret(named[1])
        if not found:
            raise UserError(f"the settings of the MCP server name the key {named[1]}", f"Set {named[1]}")
        keys.append(found)
        return found

    return _SECRET.sub(key, text)
