"""Resources on a server: each call is a request in the session that `open` began.

Tools, their texts and verdicts are the same as those of the resources in this process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from ludus.dialects.usage import complete_usage
from ludus.environment import Environment
from ludus.errors import Failure, UserError
from ludus.game import Game, Step
from ludus.http.connection import HttpReply
from ludus.outcome import Verdict
from ludus.remote.http import LAST, RAISED, SEED, SESSION, Client, connect
from ludus.remote.verdicts import failure_in, verdict_in
from ludus.resources import Resources, ResourcesConfig
from ludus.response import Response, encoded_items
from ludus.runtime.encoding import encode
from ludus.tools import Raised, ToolError, ToolErrorKind, not_found

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_RESERVED = frozenset(
    "seed_session verify close_session aggregate_metrics reverify_mode reset step close mcp health metrics".split()
)
#: The statuses of failed tool calls. Any other status means that the tool ran.
_TOOL_ERRORS: dict[int, ToolErrorKind] = {404: "unknown_tool", 422: "bad_arguments", 500: "raised"}

#: The key of a Ludus server's OpenAPI document that holds the digest of its verifier, and a route of each kind.
_VERIFIER = "x-ludus-verifier"
_FIRST_ROUTE = {"resources": "/seed_session", "agent": "/run"}


class RemoteConfig(ResourcesConfig):
    """The server's URL, and the environment variable that holds its token."""

    #: the URL of the resources server
    url: str = ""
    #: the environment variable that holds the token of the server
    token_env: str = "LUDUS_TOKEN"


@dataclass
class _Shared:
    client: Client
    tools: list[dict[str, Any]] = field(default_factory=list)


class RemoteResources(Resources):
    """Stands in for resources on a server.

    environment = remote_resources(Environment.load("mcqa"), "http://127.0.0.1:8001")
    """

    Config: ClassVar[type[ResourcesConfig]] = RemoteConfig
    shared: _Shared
    environment_name = ""  #: the environment that the server must serve; any, if empty
    verifier: ClassVar[str | None] = ""

    @classmethod
    @asynccontextmanager
    async def share(cls, config: RemoteConfig) -> AsyncIterator[_Shared]:
        """Connect to the server, and read its list of tools."""
        async with connect(config.url, config.token_env) as client:
            document = await openapi_document(client, "resources", cls.environment_name)
            cls.verifier = verifier_in(document) or ""
            yield _Shared(client, _tools(document))

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._headers: dict[str, str] = {}
        self._cookies: dict[str, str] = {}
        self._turn = asyncio.Lock()
        #: the reply that began the session, of a server that is not Ludus's
        self.seeded: HttpReply | None = None

    async def open(self, task: Any) -> None:
        """Begin a session on the server."""
        await self._begin("/seed_session", task)

    async def verify(self, task: Any, response: Response) -> Verdict:
        """Let the server judge. A Ludus server has the task already, and closes the session with its verdict."""
        client, answer = self.shared.client, _complete(response)
        if SESSION not in self._headers:
            row = task.model_dump(mode="json", exclude_unset=True)
            body = encode({**row, "response": answer})
            return verdict_in(client.checked(await self._post("/verify", body)), row)
        reply = await client.post("/verify", encode({"response": answer}), {**self._headers, LAST: "1"})
        verdict = verdict_in(client.checked(reply), {})
        self._headers = {}
        return verdict

    async def close(self) -> None:
        """Close the session on the server. A server without this route lets the session expire."""
        if SESSION in self._headers:
            reply = await self.shared.client.post("/close_session", b"{}", self._headers)
            if reply.status >= 500:
                raise self.shared.client.failure(reply)

    def tools(self) -> list[dict[str, Any]]:
        """The tools that the server describes."""
        return [dict(tool) for tool in self.shared.tools]

    async def call(self, name: str, arguments: str) -> str:
        """Run a tool on the server. The model sees the body of the reply."""
        if not self._is_tool(name):
            return not_found()
        client = self.shared.client
        reply = await self._post(f"/{name}", arguments.encode("utf-8", "replace") or b"{}")
        if reply.status == 410 or (reply.status >= 500 and b'"stage"' in reply.body):
            raise client.failure(reply)
        text, kind = reply.body.decode("utf-8", "replace"), _TOOL_ERRORS.get(reply.status)
        if kind is None:
            return text
        return ToolError(text, kind, self._raised(reply) if kind == "raised" else None)

    def _is_tool(self, name: str) -> bool:
        """Whether a model may call the route of this name."""
        return _TOOL_NAME.fullmatch(name) is not None and name not in _RESERVED

    def _raised(self, reply: HttpReply) -> Raised | None:
        """The exception of a tool on the server. Servers that are not ours do not tell its class."""
        named = reply.all(RAISED)
        if not named:
            return None if SESSION in self._headers else Raised(f"HTTP {reply.status}", reply.start())
        exception, _, where = named[0].partition(" ")
        return Raised(exception, reply.start(), where or None)

    async def pass_on(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> HttpReply:
        """Send a request of this session as a program made it, with the program's cookies."""
        own = {name: value for name, value in headers.items() if name != "content-type"}  # the client says it itself
        return await self.shared.client.send(method, path, body, own)

    async def _begin(self, path: str, task: Any) -> HttpReply:
        client = self.shared.client
        reply = await client.post(path, self._first_body(task), {**self._headers, SEED: str(self._seed)})
        client.checked(reply)
        if named := reply.all(SESSION):
            self._headers = {SESSION: named[0]}
        else:
            self.seeded = reply
            self._keep_cookies(reply)
        return reply

    def _first_body(self, task: Any) -> bytes:
        """The body of the request that begins the session: the row."""
        body: bytes = task.model_dump_json(exclude_unset=True).encode()
        return body

    async def _post(self, path: str, body: bytes) -> HttpReply:
        """Send a request of this session. Where cookies hold the session, requests wait for each other: every reply
        may set new ones."""
        if SESSION in self._headers:
            return await self.shared.client.post(path, body, self._headers)
        async with self._turn:
            reply = await self.shared.client.post(path, body, self._headers)
            self._keep_cookies(reply)
            return reply

    def _keep_cookies(self, reply: HttpReply) -> None:
        """Send the cookies of a reply with later requests."""
        for line in reply.all("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self._cookies[name.strip()] = value.strip()
        if self._cookies:
            self._headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())


class RemoteGame(Game, RemoteResources):
    """Stands in for a game on a server."""

    async def open(self, task: Any) -> None:
        """Does nothing: `reset` begins the session."""

    async def reset(self, task: Any) -> str | None:
        """Begin the game on the server."""
        reply = (await self._begin("/reset", task)).json()
        observation = reply.get("observation")
        return str(observation) if observation is not None else None

    async def step(self, task: Any, response: Response) -> Step:
        """Play a turn on the server."""
        row = task.model_dump(mode="json", exclude_unset=True)
        body = encode({**row, "response": _complete(response)})
        reply = self.shared.client.checked(await self._post("/step", body))
        if not isinstance(reply, dict) or "reward" not in reply:
            raise Failure("bad_verdict", f"the server's step has no reward: {str(reply)[:200]}", stage="verify")
        if (failure := failure_in(reply)) is not None:
            raise failure
        info = dict(reply.get("info") or {})
        outputs = [(output["call_id"], output["output"]) for output in info.pop("tool_outputs", [])]
        return Step(
            reply.get("observation"),
            reply["reward"],
            bool(reply.get("terminated")),
            bool(reply.get("truncated")),
            outputs,
            info,
        )


def remote_resources(environment: Environment, url: str, token_env: str = "LUDUS_TOKEN") -> Environment:
    """The environment with its resources on a server. Rows are still checked here."""
    base = RemoteGame if issubclass(environment.resources, Game) else RemoteResources
    return stand_in(environment, base, url, token_env)


def stand_in(environment: Environment, base: type[Resources], url: str, token_env: str) -> Environment:
    """The environment with `base` in place of its resources, for a server at `url`."""
    local = environment.resources
    parts = {"Task": local.Task, "__doc__": local.__doc__, "environment_name": environment.name}
    kind: type[Resources] = type(local.__name__, (base,), parts)
    config = RemoteConfig(url=url, token_env=token_env, compat=environment.config.compat)
    return replace(environment, resources=kind, config=config)


def _complete(response: Response) -> dict[str, Any]:
    """A response to send, with all counts in its usage: NeMo Gym's servers refuse one that lacks any."""
    answer = {**response.data, "output": encoded_items(response.output)}
    return {**answer, "usage": complete_usage(response.usage)} if response.usage else answer


async def openapi_document(client: Client, kind: Literal["resources", "agent"], name: str) -> dict[str, Any]:
    """The OpenAPI document of a server; empty if it has none.

    Raises a `UserError` if the document says that the server is of another kind or serves another environment than
    `name`: its rewards would be those of another task. Only servers of Ludus say so.
    """
    reply = await client.get("/openapi.json")
    document = reply.json() if reply.status == 200 else None
    if not isinstance(document, dict):
        return {}
    info = document.get("info")
    if isinstance(info, dict) and _VERIFIER in info:
        hint = f"Give the URL of the {kind} server of {name or 'the environment'}: ludus status lists the servers"
        if name and info.get("title") != name:
            raise UserError(f"{client.url} serves the environment {info.get('title')}, not {name}", hint)
        if _FIRST_ROUTE[kind] not in document.get("paths", {}):
            raise UserError(f"{client.url} is not a server for {kind}: it has no {_FIRST_ROUTE[kind]}", hint)
    return document


def verifier_in(document: dict[str, Any]) -> str | None:
    """The digest of the verifier in a server's OpenAPI document."""
    return document.get("info", {}).get(_VERIFIER)  # type: ignore[no-any-return]


def _tools(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools in a server's OpenAPI document: the operations that are marked as tools."""
    tools = []
    for path, operations in (document.get("paths") or {}).items():
        post = operations.get("post") or {}
        if post.get("x-ludus-tool"):
            schema = post["requestBody"]["content"]["application/json"]["schema"]
            strict = set(schema.get("required", ())) == set(schema.get("properties", ()))
            name = {"type": "function", "name": path[1:], "description": post.get("summary", "")}
            tools.append({**name, "parameters": schema, "strict": strict})
    return tools
