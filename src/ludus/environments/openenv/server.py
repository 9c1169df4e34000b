"""A client for OpenEnv servers. Each connection has its own environment on the server.

The protocol is small (JSON over a WebSocket: `reset`, `step`, `close`), so the client needs no OpenEnv package. Replies
carry no request id; only their order says which request a reply belongs to. So after a request whose reply was not
awaited, every later request on the connection fails. Otherwise it could get the reply to the earlier request.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from ludus.errors import Failure, UserError, missing_extra
from ludus.runtime.encoding import encode
from ludus.runtime.keys import look_up_key, without_keys_and_paths

try:
    import aiohttp
except ModuleNotFoundError as error:
    raise missing_extra("aiohttp, which speaks to OpenEnv's servers,", "aiohttp") from error

_CONNECT_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_SHOWN_CHARACTERS = 300


class OpenEnvError(Exception):
    """The server replied with an error. `code` is the protocol's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Observation:
    """The observation after a reset or a step. `reward` is None if the server gave none."""

    fields: dict[str, Any]
    reward: float | None
    done: bool


class OpenEnvServer:
    """An OpenEnv server: the schema of its actions, and connections to it."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http

    async def action_schema(self) -> dict[str, Any]:
        """The JSON schema of an action."""
        try:
            timeout = aiohttp.ClientTimeout(total=_CONNECT_SECONDS)
            async with self._http.get(f"{self.url}/schema", allow_redirects=False, timeout=timeout) as reply:
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
        """Open a session. A server at its capacity says so only in its reply to the first request."""
        try:
            socket = await self._http.ws_connect(
                f"{self.url}/ws",
                max_msg_size=_MAX_MESSAGE_BYTES,
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
    """One session, with its own environment on the server."""

    def __init__(self, url: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._url = url
        self._socket = socket
        self._reply_due = False

    async def reset(self, **parameters: Any) -> Observation:
        """Begin an episode."""
        return self._observation(await self._request({"type": "reset", "data": parameters}))

    async def step(self, action: dict[str, Any]) -> Observation:
        """Take an action. Raises `OpenEnvError` for an action that the server did not take."""
        return self._observation(await self._request({"type": "step", "data": action}))

    async def close(self) -> None:
        """Close the session, even if the server no longer answers."""
        try:
            if not self._socket.closed:
                await self._socket.send_str('{"type":"close"}')
        except (ConnectionError, aiohttp.ClientError):
            pass
        await self._socket.close()

    async def _request(self, message: dict[str, Any]) -> Any:
        """Send one request and wait for its reply. No other request may be sent before the reply."""
        if self._reply_due:
            raise Failure("disconnected", f"{self._url}: an earlier request of this session got no reply")
        self._reply_due = True
        try:
            await self._socket.send_str(encode(message).decode())
            received = await self._socket.receive()
        except (ConnectionError, aiohttp.ClientError) as error:
            raise Failure("disconnected", f"{self._url} is gone: {error or type(error).__name__}") from error
        if received.type is not aiohttp.WSMsgType.TEXT:
            raise Failure("disconnected", f"{self._url} closed the session: {_close_reason(received)}")
        self._reply_due = False
        body = received.data.encode("utf-8", "replace")
        reply = _json(body, self._url)
        if not isinstance(reply, dict) or not isinstance(reply.get("data"), dict):
            raise Failure("bad_response", f"{self._url} sent a reply without an object as data: {_start(body)}")
        if reply.get("type") == "error":
            raise self._error(reply["data"])
        if reply.get("type") != "observation":
            raise Failure("bad_response", f"{self._url} sent {reply.get('type')!r:.40} instead of an observation")
        return reply["data"]

    def _error(self, error: dict[str, Any]) -> Exception:
        code, message = str(error.get("code", "UNKNOWN")), without_keys_and_paths(str(error.get("message", "")))
        if code == "CAPACITY_REACHED":
            most = error.get("max_sessions", "fewer")
            return Failure("at_capacity", f"{self._url} takes {most} sessions at once: lower --concurrency")
        if code in ("FACTORY_ERROR", "SESSION_ERROR"):
            return Failure("bad_response", f"{self._url} made no environment: {message[:_SHOWN_CHARACTERS]}")
        if isinstance(error.get("errors"), list):
            message = encode([_problem(problem) for problem in error["errors"]]).decode()
        return OpenEnvError(code, message)

    def _observation(self, data: dict[str, Any]) -> Observation:
        fields, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
        if not isinstance(fields, dict) or not isinstance(done, bool):
            raise Failure("bad_response", f"{self._url} sent no observation: {str(data)[:_SHOWN_CHARACTERS]}")
        if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
            raise Failure("bad_response", f"{self._url} sent a reward that is not a finite number: {reward!r:.80}")
        # OpenEnv 0.10 sends the server's own notes among the fields. They are not for the model.
        fields = {name: value for name, value in fields.items() if name != "metadata"}
        return Observation(fields, None if reward is None else float(reward), done)


@asynccontextmanager
async def openenv_server(url: str, token_env: str) -> AsyncIterator[OpenEnvServer]:
    """A server to connect to while the context is open. Its connections share no cookies."""
    if not url.startswith(("http://", "https://")):
        hint = "Write openenv:URL, such as openenv:http://127.0.0.1:8000"
        raise UserError(f"an OpenEnv server is named by its URL, not by {url!r:.80}", hint)
    token = look_up_key(token_env)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    ) as http:
        yield OpenEnvServer(url, http)


def _problem(error: Any) -> Any:
    """The parts of a validation error that a model needs."""
    return {key: error.get(key) for key in ("loc", "msg")} if isinstance(error, dict) else str(error)


def _json(body: bytes, url: str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Failure("bad_response", f"{url} sent a reply that is not JSON: {_start(body)}") from error


def _close_reason(received: aiohttp.WSMessage) -> str:
    return f"{received.type.name.lower()} {received.data or ''} {received.extra or ''}".strip()


def _start(body: bytes) -> str:
    return without_keys_and_paths(" ".join(body[:_SHOWN_CHARACTERS].decode("utf-8", "replace").split()))
