"""A client for running servers, by the names that their configuration gives them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from typing import Any

import orjson
from ludus_nemo_gym.agent_servers import ANY_ADDRESS, TOKEN, configuration_of, head_url
from ludus_nemo_gym.servers import find_servers
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict

from ludus.errors import Failure, did_you_mean
from ludus.http.connection import HttpReply
from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from nemo_gym._errors import RolloutError, response_error
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, get_global_config_dict


class Body(bytes):
    """The body of a reply, which code for aiohttp reads with `await reply.content.read()`."""

    async def read(self) -> bytes:
        """All of it."""
        return bytes(self)


class ServerReply:
    """A server's reply. Its body has arrived, so it can be read in any event loop.

    It offers what code for aiohttp's `ClientResponse` asks for.
    """

    def __init__(self, url: str, reply: HttpReply) -> None:
        self.url = url
        self.status = reply.status
        self.content = Body(reply.body)
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.headers}
        self.cookies: SimpleCookie = SimpleCookie()
        for header in reply.all("set-cookie"):
            self.cookies.load(header)

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    async def json(self) -> Any:
        """The body's JSON value."""
        return orjson.loads(bytes(self.content))

    async def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")

    async def read(self) -> bytes:
        """The body."""
        return bytes(self.content)

    def raise_for_status(self) -> None:
        """Raise an error with `status` and `response_content` if the status is 400 or more."""
        if not self.ok:
            raise response_error(self.status, bytes(self.content))


class ServerClient(BaseModel):
    """Calls servers by name. The head lists their addresses.

    client = ServerClient.load_from_global_config()
    reply = await client.post(server_name="mcqa_simple_agent", url_path="/run", json=row)
    print((await reply.json())["reward"])
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """The head's address according to the command line and `env.yaml`."""
        return BaseServerConfig.model_validate(OmegaConf.to_container(get_global_config_dict()[HEAD_SERVER_KEY_NAME]))

    @classmethod
    def load_from_global_config(cls, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client for the servers of a head that runs. May be called with and without a running event loop."""
        head = head_server_config or cls.load_head_server_config()
        url = head_url({HEAD_SERVER_KEY_NAME: head.model_dump()})
        try:
            with ThreadPoolExecutor(1) as thread:  # which has no event loop
                tree = thread.submit(asyncio.run, configuration_of(url)).result()
        except Failure as error:
            raise ValueError(f"{error.cause}: is a server running? Start one with: gym env start") from error
        return cls(head_server_config=head, global_config_dict=OmegaConf.create(tree))

    async def post(self, server_name: str, url_path: str, **options: Any) -> ServerReply:
        """Send a POST request. `json` is a value or a pydantic model; `cookies` and `headers` are mappings of texts."""
        return await self.request(server_name, url_path, "POST", **options)

    async def get(self, server_name: str, url_path: str, **options: Any) -> ServerReply:
        """Send a GET request, with `cookies` and `headers` as mappings of texts."""
        return await self.request(server_name, url_path, "GET", **options)

    async def request(
        self,
        server_name: str,
        url_path: str,
        method: str,
        *,
        json: Any = None,
        cookies: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> ServerReply:
        """Send a request and return the reply, whatever its status. Raises `RolloutError` if there is no reply."""
        url = self._url(server_name)
        body = json.model_dump(exclude_unset=True) if isinstance(json, BaseModel) else json
        sent = dict(headers or {})
        if cookies:
            sent["Cookie"] = "; ".join(f"{name}={_text(value)}" for name, value in cookies.items())
        content = encode(body if body is not None else {}) if method == "POST" else b""
        async with connect(url, TOKEN) as client:
            try:
                return ServerReply(url, await client.send(method, url_path, content, sent))
            except Failure as error:
                raise RolloutError.from_failure(error) from error

    def _build_server_base_url(self, server_config_dict: Any) -> str:
        """The address in the settings of a server."""
        return f"http://{server_config_dict['host']}:{server_config_dict['port']}"

    def _url(self, name: str) -> str:
        servers, _ = find_servers(OmegaConf.to_container(self.global_config_dict))  # type: ignore[arg-type]
        blocks = {server.name: server.block for server in servers}
        if name not in blocks:
            raise KeyError(f"no server {name} is running. {did_you_mean(name, blocks)}")
        host = str(blocks[name].get("host"))
        return f"http://{ANY_ADDRESS.get(host, host)}:{blocks[name].get('port')}"


def _text(cookie: Any) -> str:
    """The value of a cookie, which may be a `Morsel` of Python's http.cookies."""
    return str(getattr(cookie, "value", cookie))
