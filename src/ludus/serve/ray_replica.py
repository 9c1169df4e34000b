"""One replica of a Ray Serve deployment: all servers of a plan in one process, below one URL.

Ray Serve sends a request to any replica. A session lives in one of them, and its id begins with that replica's number.
Any other replica forwards the request over HTTP; a registry knows the owner's port. A client cannot choose an arbitrary
target: an unregistered number is answered with 410.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from ludus.collection.engines.setup import shipped_root
from ludus.http.app import App
from ludus.http.client import Connections
from ludus.http.guard import LOOPBACK
from ludus.http.listening import address
from ludus.http.messages import Receive, Refusal, Scope, Send
from ludus.serve.forwarding import peer_connections
from ludus.serve.plan import Plan
from ludus.serve.site import Site

#: The prefix of an environment folder that was shipped to the nodes.
IN_COPY = "copy:"


class Registry:
    """A Ray actor that numbers the replicas and knows their ports. A number is used once."""

    def __init__(self) -> None:
        self._urls: dict[int, dict[str, str]] = {}

    def enroll(self) -> int:
        """A number for a replica."""
        self._urls[len(self._urls) + 1] = {}
        return len(self._urls)

    def add(self, replica: int, name: str, url: str) -> None:
        """A replica's server listens at a URL."""
        self._urls[replica][name] = url

    def find(self, replica: int, name: str) -> str | None:
        """The URL of a replica's server."""
        return self._urls.get(replica, {}).get(name)


class RegisteredPeers:
    """Replicas on any machine: each listens at a port of its own, with the token of the plan."""

    def __init__(self, registry: Any, host: str) -> None:
        self._registry, self._host = registry, host

    async def listen(self, name: str, worker: int) -> socket.socket:
        """Bind a free port and tell it to the registry."""
        listening = socket.create_server((self._host, 0), backlog=1024)
        listening.setblocking(False)
        await self._registry.add.remote(worker, name, address(self._host, listening.getsockname()[1]))
        return listening

    async def connect(self, name: str, worker: int) -> Connections:
        """Connections to a replica that is registered."""
        url = await self._registry.find.remote(worker, name)
        if url is None:
            raise ConnectionRefusedError(f"there is no replica {worker}")
        return peer_connections(url)

    def close(self, name: str, worker: int) -> None:
        """Nothing to do: a closed port leaves nothing behind."""


class Replica:
    """The class of the deployment. Ray Serve makes one in each replica's process."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, plan: dict[str, Any], token: str | None, registry: Any
    ) -> None:
        checked = Plan.model_validate(plan)
        for server in checked.servers:
            if server.environment is not None and server.environment.startswith(IN_COPY):
                server.environment = str(shipped_root() / server.environment.removeprefix(IN_COPY))
        if token is not None:
            os.environ[checked.token_env] = token
        number = await registry.enroll.remote()
        self._site = Site(checked, number, RegisteredPeers(registry, _own_host(checked)))
        try:
            self.applications = await self._site.open()
        except BaseException:
            await self._site.stop()
            raise

    def __serve_build_asgi_app__(self) -> Below:
        return Below(self.applications)

    async def __del__(self) -> None:
        site = getattr(self, "_site", None)
        if site is not None:
            await site.stop()


class Below:
    """The ASGI application of a replica: `/NAME/...` is the server of this name."""

    def __init__(self, applications: dict[str, Any]) -> None:
        self._applications = applications

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        name, _, rest = scope["path"].removeprefix("/").partition("/")
        app = self._applications.get(name)
        if app is None or scope["type"] != "http":
            known = ", ".join(f"/{name}" for name in self._applications)
            await App().refuse(Refusal(404, f"no server has this name. The servers are {known}"), send)
            return
        path = f"/{rest}"
        await app({**scope, "path": path, "raw_path": path.encode(), "root_path": ""}, receive, send)


def _own_host(plan: Plan) -> str:
    """Where a replica listens for others: on loopback if the plan does, else at the address of its node."""
    if plan.host in LOOPBACK:
        return plan.host
    import ray

    return str(ray.util.get_node_ip_address())
