"""A client for running servers, by the names that their configuration gives them."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from ludus_nemo_gym.head import ANY_ADDRESS, TOKEN, configuration_of, head_url
from ludus_nemo_gym.in_process import send_request
from ludus_nemo_gym.launch import DEFAULT_HOST, HEAD_PORT
from ludus_nemo_gym.names import RESOURCES, ROLLOUTS_IN_PATHS
from ludus_nemo_gym.trees import plain
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError
from pydantic import BaseModel, ConfigDict, PrivateAttr

from ludus.errors import Failure, did_you_mean
from ludus.remote.http import ROLLOUT, Client, connect
from ludus.runtime.encoding import encode
from nemo_gym._addresses import base_url_of, redirected_base_url, rollout_path_prefix
from nemo_gym._errors import connection_error
from nemo_gym._replies import ServerReply
from nemo_gym._responses import field_of
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    OBSERVABILITY_ENABLED_KEY_NAME,
    configuration_of_server,
    get_first_server_config_dict,
    get_global_config_dict,
    top_level_setting,
)
from nemo_gym.rollout_correlation import current_rollout_id

_POLL_SECONDS = 5.0
#: Headers about one connection. A server that passes a request on passes them on, too; ours are computed.
_OF_CONNECTION = frozenset({"host", "content-length", "connection", "transfer-encoding"})
_MODEL_PATHS = ("/v1/responses", "/v1/chat/completions", "/v1/messages")


@dataclass
class _Kept:
    """What a client keeps between requests: its connections, and the addresses of the servers, by name."""

    stack: AsyncExitStack
    loop: asyncio.AbstractEventLoop
    clients: dict[str, Client] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)


class ServerClient(BaseModel):
    """Calls servers by name. The head lists their addresses.

    client = ServerClient.load_from_global_config()
    reply = await client.post(server_name="mcqa_simple_agent", url_path="/run", json=row)
    print((await reply.json())["reward"])
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig

    _local: dict[str, Any] = PrivateAttr(default_factory=dict)  # the applications of servers of this process, by name
    _kept: _Kept | None = PrivateAttr(default=None)

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """The head's address according to the process's configuration, or to the command line and `env.yaml`."""
        tree = get_global_config_dict()
        default = {"host": tree.get("default_host") or DEFAULT_HOST, "port": HEAD_PORT}
        return BaseServerConfig.model_validate({**default, **(plain(tree.get(HEAD_SERVER_KEY_NAME)) or {})})

    @classmethod
    def load_from_global_config(cls, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client for the servers of this process's configuration; without one, for those of a head that runs.

        May be called with and without a running event loop.
        """
        head = head_server_config or cls.load_head_server_config()
        own = configuration_of_server()
        if own is not None:
            return cls(head_server_config=head, global_config_dict=own)
        url = head_url({HEAD_SERVER_KEY_NAME: head.model_dump()})
        try:
            with ThreadPoolExecutor(1) as thread:  # which has no event loop
                tree = thread.submit(asyncio.run, configuration_of(url)).result()
        except Failure as error:
            raise ValueError(f"{error.cause}: is a server running? Start one with: gym env start") from error
        return cls(head_server_config=head, global_config_dict=OmegaConf.create(tree))

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> ServerReply:
        """Send a POST request. `json` is a value or a pydantic model; `cookies` and `headers` are mappings of texts."""
        return await self.request(server_name, url_path, "POST", **kwargs)

    async def get(self, server_name: str, url_path: str, **kwargs: Any) -> ServerReply:
        """Send a GET request, with `cookies` and `headers` as mappings of texts."""
        return await self.request(server_name, url_path, "GET", **kwargs)

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> ServerReply:
        """Send a request and return the reply, whatever its status.

        The options are those of aiohttp: `json`, `data`, `params`, `cookies`, `headers`, `timeout`. Raises
        `RolloutError`, which is one of aiohttp's errors, too, if there is no reply, and `TimeoutError`.
        """
        if (local := self._local.get(server_name)) is not None:
            path, content, headers = sent_request(url_path, kwargs)
            async with asyncio.timeout(seconds_of(kwargs.get("timeout"))):
                return ServerReply(server_name, await send_request(local, method, path, content, _named(headers)))
        if (double := _replaced_request()) is not None:
            url = self._address(server_name) + self._prefix(server_name, url_path) + url_path
            if isinstance(json := kwargs.get("json"), BaseModel):
                kwargs["json"] = json.model_dump(exclude_unset=True)
            sent = {"method": method, "url": url, "_internal": True, "_server_name": server_name, **kwargs}
            reply: ServerReply = await double(**sent)
            return reply
        base = urlsplit(self._address(server_name))
        origin = f"{base.scheme}://{base.netloc}"
        path, content, headers = sent_request(base.path + self._prefix(server_name, url_path) + url_path, kwargs)
        content_type = headers.pop("content-type", "application/json")
        async with (
            asyncio.timeout(seconds_of(kwargs.get("timeout"))),
            self._connected(origin, content_type) as client,
        ):
            try:
                return ServerReply(origin, await client.send(method, path, content, _named(headers)))
            except Failure as error:
                raise connection_error(error) from error

    @asynccontextmanager
    async def _connected(self, origin: str, content_type: str) -> AsyncIterator[Client]:
        """A client for a server. Within `kept_connections` its connections are used again by later requests."""
        if self._kept is None or self._kept.loop is not asyncio.get_running_loop():
            async with connect(origin, TOKEN, content_type=content_type) as client:
                yield client
            return
        clients, key = self._kept.clients, f"{origin} {content_type}"
        if key not in clients:
            entered = connect(origin, TOKEN, content_type=content_type)
            clients[key] = await self._kept.stack.enter_async_context(entered)
        yield clients[key]

    @asynccontextmanager
    async def kept_connections(self) -> AsyncIterator[None]:
        """Keep connections open between the requests of this event loop until the block ends. No server may move
        meanwhile.
        """
        async with AsyncExitStack() as stack:
            self._kept = _Kept(stack, asyncio.get_running_loop())
            try:
                yield
            finally:
                self._kept = None

    def poll_for_status(self, server_name: str) -> str:
        """Whether a server answers: `success`, `connection_error`, `timeout` or `unknown_error`."""
        try:
            with urllib.request.urlopen(self._resolve_base_url(server_name), timeout=_POLL_SECONDS):
                return "success"
        except TimeoutError:
            return "timeout"
        except urllib.error.HTTPError:
            return "unknown_error"
        except OSError as error:
            return "timeout" if isinstance(getattr(error, "reason", None), TimeoutError) else "connection_error"
        except Exception:
            return "unknown_error"

    def _build_server_base_url(self, server_config_dict: Any) -> str:
        """The address in the settings of a server."""
        return base_url_of(server_config_dict)

    def _address(self, server_name: str) -> str:
        """The address of a server, without a rollout: requests have it in a header.

        Within `kept_connections` the configuration is asked once.
        """
        addresses = self._kept.addresses if self._kept is not None else {}
        if server_name not in addresses:
            url = self._resolve_base_url(server_name)
            addresses[server_name] = url.removesuffix(rollout_path_prefix(current_rollout_id()))
        return addresses[server_name]

    def _resolve_base_url(self, server_name: str) -> str:
        """The address of a server. Environment variables may redirect the calls to one model server."""
        if (redirected := redirected_base_url(server_name)) is not None:
            return redirected
        try:
            block = get_first_server_config_dict(self.global_config_dict, server_name)
        except (KeyError, TypeError, StopIteration) as error:
            known = [str(name) for name, entry in self.global_config_dict.items() if isinstance(entry, Mapping)]
            advice = did_you_mean(server_name, known)
            raise ConfigKeyError(f"no server {server_name} is running. {advice}") from error
        host = str(field_of(block, "host"))
        named = {name: field_of(block, name) for name in ("port", ROLLOUTS_IN_PATHS)}
        return self._build_server_base_url({"host": ANY_ADDRESS.get(host, host), **named})

    def _prefix(self, server_name: str, url_path: str) -> str:
        """What tells a server which rollout a request belongs to, if the configuration asks for it."""
        rollout_id = current_rollout_id()
        if rollout_id is None or not top_level_setting(self.global_config_dict, OBSERVABILITY_ENABLED_KEY_NAME):
            return ""
        is_of_rollout = url_path in _MODEL_PATHS or RESOURCES in (self.global_config_dict.get(server_name) or ())
        return rollout_path_prefix(rollout_id) if is_of_rollout else ""


def _replaced_request() -> Any:
    """`nemo_gym.server_utils.request`, if a test put a double in its place or in place of its client; else None."""
    module = sys.modules.get("nemo_gym.server_utils")
    return module.replaced_request() if module is not None and hasattr(module, "replaced_request") else None


def sent_request(path: str, options: Mapping[str, Any]) -> tuple[str, bytes, dict[str, str]]:
    """The path, the body and the headers (in lower case) of a request with aiohttp's options."""
    given = (options.get("headers") or {}).items()
    headers = {str(name).lower(): str(value) for name, value in given if str(name).lower() not in _OF_CONNECTION}
    if params := options.get("params"):
        path += ("&" if "?" in path else "?") + urlencode(params, doseq=True)
    if cookies := options.get("cookies"):
        headers["cookie"] = "; ".join(f"{name}={_text(value)}" for name, value in cookies.items())
    json, data = options.get("json"), options.get("data")
    if json is not None:
        return path, encode(json.model_dump(exclude_unset=True) if isinstance(json, BaseModel) else json), headers
    if isinstance(data, Mapping):
        headers.setdefault("content-type", "application/x-www-form-urlencoded")
        return path, urlencode(data, doseq=True).encode(), headers
    return path, data.encode() if isinstance(data, str) else bytes(data or b""), headers


def seconds_of(timeout: Any) -> float | None:
    """The seconds of a timeout: a number, or aiohttp's `ClientTimeout`."""
    return timeout if timeout is None or isinstance(timeout, (int, float)) else getattr(timeout, "total", None)


def _text(cookie: Any) -> str:
    """The value of a cookie, which may be a `Morsel` of Python's http.cookies."""
    return str(getattr(cookie, "value", cookie))


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Headers with the rollout that the caller works for. Ludus's servers read it; others ignore it."""
    rollout = current_rollout_id()
    return {ROLLOUT: rollout, **headers} if rollout is not None else headers
