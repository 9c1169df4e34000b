"""What servers and agents use to call each other, by the names that their configuration gives them."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from ludus_nemo_gym.launch import HEAD_PORT

from ludus.errors import missing_extra
from nemo_gym._addresses import base_url_of, rollout_path_prefix
from nemo_gym._client import ServerClient
from nemo_gym._errors import response_error
from nemo_gym._replies import ServerReply
from nemo_gym._rollout_header import naming_rollouts
from nemo_gym._simple_server import SESSION_ID_KEY, BaseServer, SimpleServer
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT, BaseServerConfig
from nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    get_first_server_config_dict,
    get_global_config_dict,
    maybe_get_global_config_dict,
)

__all__ = [
    "DEFAULT_HEAD_SERVER_PORT",
    "HEAD_SERVER_KEY_NAME",
    "MAX_NUM_TRIES",
    "SESSION_ID_KEY",
    "BaseServer",
    "BaseServerConfig",
    "ServerClient",
    "ServerReply",
    "SimpleServer",
    "apply_rollout_prefix",
    "get_first_server_config_dict",
    "get_global_aiohttp_client",
    "get_response_json",
    "get_server_url",
    "initialize_ray",
    "is_global_aiohttp_client_request_debug_enabled",
    "is_nemo_gym_fastapi_entrypoint",
    "raise_for_status",
    "request",
    "rollout_path_prefix",
    "setup_server_client",
]

DEFAULT_HEAD_SERVER_PORT = HEAD_PORT
MAX_NUM_TRIES = 3
#: How often a request between servers of one run is sent before its error is raised, and the seconds in between. NeMo
#: Gym sends it again without end: a server that is gone would then hang its rollout.
_INTERNAL_TRIES, _PAUSE = 20, 0.5

#: The shared client of each event loop.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()


async def request(
    method: str,
    url: str,
    _internal: bool = False,
    _max_connection_retries: int | None = None,
    _server_name: str | None = None,
    **kwargs: Any,
) -> Any:
    """Send one HTTP request with the shared client of aiohttp, and return its response, whatever the status.

    A request that does not arrive is sent again.
    """
    client = get_global_aiohttp_client()
    if kwargs.get("json"):
        kwargs["data"] = orjson.dumps(kwargs.pop("json"))
        kwargs["headers"] = {"Content-Type": "application/json", **(kwargs.get("headers") or {})}
    retries = _max_connection_retries
    most = (_INTERNAL_TRIES if _internal else MAX_NUM_TRIES) if retries is None else retries + 1
    for tries in range(1, most + 1):
        try:
            return await client.request(method, url, **kwargs)
        except Exception:
            if tries == most:
                raise
            await asyncio.sleep(_PAUSE)
    raise AssertionError("unreachable")


async def raise_for_status(response: Any, content: bytes | None = None) -> None:
    """Raise aiohttp's `ClientResponseError`, with the body as `response_content`, if the status is 400 or more."""
    if response.ok:
        return
    body = content if content is not None else await _body(response)
    await _raise_own_error(response, body)
    raise response_error(response.status if isinstance(response.status, int) else 500, body)


async def _raise_own_error(response: Any, body: bytes) -> None:
    """Raise the error that a test double of a response has. Those of real responses are replaced, to be pickled."""
    raise_own = getattr(response, "raise_for_status", None)
    if isinstance(response, ServerReply) or type(response).__module__.startswith("aiohttp.") or raise_own is None:
        return
    try:
        raised = raise_own()
        if inspect.isawaitable(raised):
            await raised
    except Exception as error:
        error.response_content = body  # type: ignore[attr-defined]
        raise


async def _body(response: Any) -> bytes:
    """The body of a response. A test double may offer only one of the two ways to read it."""
    for holder in (response, getattr(response, "content", None)):
        read = getattr(holder, "read", None)
        body = read() if read is not None else None
        if inspect.isawaitable(body):
            body = await body
        if isinstance(body, (bytes, str)):
            return body if isinstance(body, bytes) else body.encode()
    return b""


async def get_response_json(response: Any) -> Any:
    """The JSON value of a response's body."""
    return orjson.loads(await response.read())


def get_server_url(server_name: str) -> str:
    """The address of a server of this process's configuration."""
    return base_url_of(get_first_server_config_dict(get_global_config_dict(), server_name))


def get_global_aiohttp_client() -> Any:
    """The client that all requests of the running event loop share. It keeps no cookies and has no time limit."""
    import aiohttp

    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None or client.closed:
        _discard_clients(ended_only=True)
        connector = aiohttp.TCPConnector(limit=102400, limit_per_host=1024)
        timeout = aiohttp.ClientTimeout(total=None)
        client = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[naming_rollouts()],
        )
        _clients[loop] = client
    return client


_ORIGINALS = request, get_global_aiohttp_client


def replaced_request() -> Any:
    """`request`, if it or its client is a test's double; else None: `ServerClient` has a faster way of its own."""
    return request if (request, get_global_aiohttp_client) != _ORIGINALS else None


def _discard_clients(*, ended_only: bool = False) -> None:
    """Close the clients of event loops that have ended, or of all, without waiting."""
    for loop, client in list(_clients.items()):
        if ended_only and not loop.is_closed():
            continue
        del _clients[loop]
        connector = client.connector
        client.detach()
        with contextlib.suppress(Exception):  # its transports cannot tell an event loop that has ended
            closing = connector.close()
            closing.send(None)  # as far as it goes without an event loop
            closing.close()


atexit.register(_discard_clients)


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Whether the configuration asks for a log of requests."""
    tree = maybe_get_global_config_dict()
    return bool(tree is not None and tree.get("global_aiohttp_client_request_debug"))


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether this process is a worker that imports `file` as its entry point: never, because Ludus starts none so."""
    return False


def apply_rollout_prefix(base_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """The URL with the prefix of a rollout at its end. One that names a rollout already keeps it."""
    url = base_url.rstrip("/")
    if rollout_id and f"/{ROLLOUT_PATH_PREFIX}/" in url:
        return f"{url}/{TOKEN_CAPTURE_PATH_SEGMENT}" if token_capture else url
    return url + rollout_path_prefix(rollout_id, token_capture=token_capture)


def setup_server_client(head_server_config: BaseServerConfig | None = None) -> ServerClient:
    """A client for the servers of a head that runs."""
    return ServerClient.load_from_global_config(head_server_config)


def initialize_ray() -> None:
    """Join the Ray cluster of `ray_head_node_address`, or start one, unless this process has Ray. Needs Ray."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise missing_extra("Ray", "ray") from error
    if not ray.is_initialized():
        ray.init(address=get_global_config_dict().get("ray_head_node_address"), ignore_reinit_error=True)
