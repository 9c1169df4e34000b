"""A hosted server as the resources of rollouts: its tools, its sessions, its verdicts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict

from ludus.errors import Failure
from ludus.http.connection import HttpReply
from ludus.remote.http import Client
from ludus.remote.resources import RemoteGame, RemoteResources
from ludus.resources import ResourcesConfig
from ludus_nemo_gym.hosted.model_servers import model_servers
from ludus_nemo_gym.hosted.settings import HostedSettings
from ludus_nemo_gym.hosted.transports import ServerTransport, transport_of


class HostedConfig(HostedSettings, ResourcesConfig):
    """Where a server's code is, what its configuration says, and how to run it.

    Any other setting goes to the server: `--set resources.KEY=VALUE` replaces a value of its configuration.
    """

    model_config = ConfigDict(extra="allow")
    part = "resources"


@dataclass
class Hosted:
    """What the sessions of a hosted server share. `tools` is empty: rows name the tools of such servers."""

    client: Client
    transport: ServerTransport
    tools: tuple[dict[str, Any], ...] = ()


class HostedResources(RemoteResources):
    """Resources of a server that was written for NeMo Gym. Its code runs unchanged, and its rows name their tools."""

    Config = HostedConfig
    shared: Hosted  # type: ignore[assignment]
    verifier = None

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._generation = -1
        self.seeded: HttpReply | None = None  #: the server's reply to the request that began the session

    @classmethod
    @asynccontextmanager
    async def share(cls, config: HostedConfig) -> AsyncIterator[Hosted]:  # type: ignore[override]
        """Serve the models that the server calls, and start the server."""
        async with (
            model_servers(config.instance, config.specs()) as models,
            transport_of(config.hosting(models), isolate=config.isolate) as transport,
        ):
            yield Hosted(Client(transport), transport)

    async def _begin(self, path: str, task: Any) -> HttpReply:
        try:
            reply = await super()._begin(path, task)
        except Failure as failure:
            if failure.kind != "crash":
                raise
            reply = await super()._begin(path, task)  # another session ended the server: this one has lost nothing
        self._generation = self.shared.transport.generation
        self.seeded = reply
        return reply

    async def _post(self, path: str, body: bytes) -> HttpReply:
        transport = self.shared.transport
        if self._generation not in (-1, transport.generation):
            raise Failure("session_lost", f"the server {transport.url} was started again and has forgotten the session")
        return await super()._post(path, body)


class HostedGame(HostedResources, RemoteGame):
    """A game server that was written for NeMo Gym: `/reset` and `/step`."""
