"""Serves a plan in this process or in worker processes, together with the head server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self

from ludus.http.app import App
from ludus.http.guard import Guard
from ludus.http.listening import Listening, address, bind
from ludus.serve.head import HeadApp
from ludus.serve.plan import Plan
from ludus.serve.site import Site, Sockets, check
from ludus.serve.workers import Workers

log = logging.getLogger("ludus.serve")


class Serving:
    """Serves a plan while it is entered. From then on the plan holds the ports of its servers.

    async with Serving(Plan.of(["mcqa"], "local")) as serving:
        print(serving.plan.servers[0].url)
    """

    def __init__(self, plan: Plan, say: Callable[[str], None] = log.warning) -> None:
        self.plan = plan
        self._say = say
        self._sockets: Sockets = {}
        self._site: Site | None = None
        self._workers: Workers | None = None
        self._head: Listening | None = None

    @property
    def head_url(self) -> str:
        """The URL of the head server."""
        return address(self.plan.host, self.plan.head_port)

    @property
    def apps(self) -> dict[str, App]:
        """The applications that this process serves, by name; none if worker processes serve them."""
        return self._site.apps if self._site is not None else {}

    def bind(self) -> None:
        """Check the plan and bind all ports: mistakes show before a server starts."""
        self.plan.token()
        check(self.plan)
        try:
            self._bind_all()
        except BaseException:
            self._close_sockets()
            raise

    def _bind_all(self) -> None:
        plan = self.plan
        if plan.head_port is not None:
            options = _address_options("--head-port", plan.head_block)
            self._sockets["head"] = bind("the head", plan.host, plan.head_port, *options)
            plan.head_port = self._sockets["head"].getsockname()[1]
        for server in plan.servers:
            options = _address_options("--port", server.block)
            self._sockets[server.name] = bind(server.name, server.host, server.port, *options)
            server.port = self._sockets[server.name].getsockname()[1]

    def _close_sockets(self) -> None:
        for listening in self._sockets.values():
            listening.close()

    def progress(self) -> dict[str, Any]:
        """Whether all servers are ready, and what has not started yet."""
        if self._workers is not None:
            return self._workers.progress()
        waiting_for = self._site.waiting_for if self._site is not None else "its process"
        return {"status": "starting" if waiting_for else "ok", "waiting_for": waiting_for, "workers": []}

    async def start(self) -> None:
        """Start all servers, and return when they answer."""
        try:
            if not self._sockets:
                self.bind()
            head = self._sockets.pop("head", None)
            if head is not None:
                app = HeadApp(self.plan, self.progress, guard=Guard(token=self.plan.token()))
                self._head = Listening(app, head)
                await self._head.begin()
            if self.plan.workers > 1:
                self._workers = Workers(self.plan, self._sockets, self._say)
                await self._workers.start()
            else:
                self._site = Site(self.plan)
                await self._site.start(self._sockets)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all servers: close their sessions and end the workers."""
        if self._head is not None:
            await self._head.stop()
        if self._workers is not None:
            await self._workers.stop()
        if self._site is not None:
            await self._site.stop()
        self._close_sockets()

    async def until_failed(self) -> None:
        """Wait forever, or raise an error when a worker keeps dying."""
        if self._workers is not None:
            await self._workers.failed()
        await asyncio.Event().wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def _address_options(flag: str, block: str | None) -> tuple[str, str]:
    """What sets the port and the host of a server: flags, or keys of its block in a configuration."""
    if block is None:
        return f"{flag}; 0 takes a free one", "--host"
    return f"++{block}.port=N", f"++{block}.host=HOST"
