"""A connection to an OpenEnv server, which holds one environment for as long as it lives.

The protocol is small (JSON over a WebSocket: `reset`, `step`, `close`), so it is spoken here and needs nothing to be
installed. Its replies carry no number: which question a reply belongs to is known only from their order. A question
whose answer nobody waited for therefore spoils the connection, and what is asked after it fails instead of being
answered with somebody else's reply.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from ludus.errors import Failure, UserError
from ludus.runtime.encoding import encode
from ludus.runtime.keys import public, secret

_CONNECT_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_LARGEST_MESSAGE = 64 * 1024 * 1024
_SHOWN = 300


class Refusal(Exception):
    """The server did not carry out what was asked. `code` is the protocol's word for why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Observation:
    """What a server shows after a reset or a step. `reward` is None where it gave none."""

    fields: dict[str, Any]
    reward: float | None
    done: bool


class OpenEnvServer:
    """A server: what its actions look like, and connections to it."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http

    async def action_schema(self) -> dict[str, Any]:
        """The JSON schema of an action."""
        try:
            patience = aiohttp.ClientTimeout(total=_CONNECT_SECONDS)
            async with self._http.get(f"{self.url}/schema", allow_redirects=False, timeout=patience) as reply:
                body = await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        if reply.status != 200:
            raise Failure(f"http_{reply.status}", f"{self.url}/schema answered {reply.status}: {_start(body)}")
        schema = _json(body, self.url)
        action = schema.get("action") if isinstance(schema, dict) else None
        if not isinstance(action, dict) or not isinstance(action.get("properties", {}), dict):
            raise Failure("bad_response", f"{self.url}/schema describes no actions: {_start(body)}")
        return action

    async def connect(self) -> Connection:
        """Begin a session. There is room for it or not; that is told in answer to the first question."""
        try:
            socket = await self._http.ws_connect(
                f"{self.url}/ws",
                max_msg_size=_LARGEST_MESSAGE,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise Failure(f"http_{error.status}", f"{self.url}/ws answered {error.status}: {error.message}") from error
        except aiohttp.ClientError as error:
            raise self._unreachable(error) from error
        return Connection(self.url, socket)

    def _unreachable(self, error: Exception) -> Failure:
        if isinstance(error, aiohttp.ClientConnectorError | TimeoutError):
            return Failure("refused", f"cannot reach {self.url}: {getattr(error, 'strerror', '') or 'no answer'}")
        return Failure("disconnected", f"{self.url} dropped the connection: {type(error).__name__}")


class Connection:
    """One session, which is one environment on the server."""

    def __init__(self, url: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._url = url
        self._socket = socket
        self._waiting = False

    async def reset(self, **parameters: Any) -> Observation:
        """Begin an episode."""
        return self._observation(await self._ask({"type": "reset", "data": parameters}))

    async def step(self, action: dict[str, Any]) -> Observation:
        """Take an action. Raises `Refusal` for one that the server did not take."""
        return self._observation(await self._ask({"type": "step", "data": action}))

    async def close(self) -> None:
        """End the session, whether or not the server still answers."""
        try:
            if not self._socket.closed:
                await self._socket.send_str('{"type":"close"}')
        except (ConnectionError, aiohttp.ClientError):
            pass
        await self._socket.close()

    async def _ask(self, message: dict[str, Any]) -> Any:
        """Ask one question and wait for its answer. Until that has come, nothing else may be asked."""
        if self._waiting:
            raise Failure("disconnected", f"{self._url}: an earlier question was left without its answer")
        self._waiting = True
        try:
            await self._socket.send_str(encode(message).decode())
            received = await self._socket.receive()
        except (ConnectionError, aiohttp.ClientError) as error:
            raise Failure("disconnected", f"{self._url} is gone: {error or type(error).__name__}") from error
        if received.type is not aiohttp.WSMsgType.TEXT:
            raise Failure("disconnected", f"{self._url} closed the session: {_why(received)}")
        self._waiting = False
        body = received.data.encode("utf-8", "replace")
        reply = _json(body, self._url)
        if not isinstance(reply, dict) or not isinstance(reply.get("data"), dict):
            raise Failure("bad_response", f"{self._url} sent no reply: {_start(body)}")
        if reply.get("type") == "error":
            raise self._refused(reply["data"])
        if reply.get("type") != "observation":
            raise Failure("bad_response", f"{self._url} sent {reply.get('type')!r:.40} where an observation was due")
        return reply["data"]

    def _refused(self, error: dict[str, Any]) -> Exception:
        code, message = str(error.get("code", "UNKNOWN")), public(str(error.get("message", "")))
        if code == "CAPACITY_REACHED":
            room = error.get("max_sessions", "fewer")
            return Failure("at_capacity", f"{self._url} takes {room} sessions at once: lower --concurrency")
        if code in ("FACTORY_ERROR", "SESSION_ERROR"):
            return Failure("bad_response", f"{self._url} has no environment for us: {message[:_SHOWN]}")
        if isinstance(error.get("errors"), list):
            message = encode([_problem(each) for each in error["errors"]]).decode()
        return Refusal(code, message)

    def _observation(self, data: dict[str, Any]) -> Observation:
        fields, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
        if not isinstance(fields, dict) or not isinstance(done, bool):
            raise Failure("bad_response", f"{self._url} sent no observation: {str(data)[:_SHOWN]}")
        if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
            raise Failure("bad_response", f"{self._url} sent a reward that is no number: {reward!r:.80}")
        return Observation(fields, None if reward is None else float(reward), done)


@asynccontextmanager
async def openenv_server(url: str, token_env: str) -> AsyncIterator[OpenEnvServer]:
    """A server to connect to while this is entered. Connections share neither cookies nor anything else."""
    if not url.startswith(("http://", "https://")):
        hint = "Write openenv:URL, such as openenv:http://127.0.0.1:8000"
        raise UserError(f"an OpenEnv server is named by its URL, not by {url!r:.80}", hint)
    token = secret(token_env)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    ) as http:
        yield OpenEnvServer(url, http)


def _problem(error: Any) -> Any:
    """What a model needs to know about a field that did not fit."""
    return {key: error.get(key) for key in ("loc", "msg")} if isinstance(error, dict) else str(error)


def _json(body: bytes, url: str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Failure("bad_response", f"{url} sent no JSON: {_start(body)}") from error


def _why(received: aiohttp.WSMessage) -> str:
    return f"{received.type.name.lower()} {received.data or ''} {received.extra or ''}".strip()


def _start(body: bytes) -> str:
    return public(" ".join(body[:_SHOWN].decode("utf-8", "replace").split()))
