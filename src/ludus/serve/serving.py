"""A plan being served: in this process, or by workers, with the head in front of both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self

from ludus.http.app import App, Guard
from ludus.http.listening import Listening, address, bind
from ludus.serve.head import HeadApp
from ludus.serve.plan import Plan
from ludus.serve.site import Site, Sockets, check
from ludus.serve.workers import Workers

log = logging.getLogger("ludus.serve")


class Serving:
    """Serves while it is entered. The ports of the plan's servers are known from then on.

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
        """Where the head listens."""
        return address(self.plan.host, self.plan.head_port)

    @property
    def apps(self) -> dict[str, App]:
        """The applications that this process serves, by name; none where workers do."""
        return self._site.apps if self._site is not None else {}

    def bind(self) -> None:
        """Check the plan and take all ports, so that what is wrong is known before anything is started."""
        plan = self.plan
        plan.token()
        check(plan)
        if plan.head_port is not None:
            self._sockets["head"] = bind("the head", plan.host, plan.head_port)
            plan.head_port = self._sockets["head"].getsockname()[1]
        for server in plan.servers:
            self._sockets[server.name] = bind(server.name, server.host, server.port)
            server.port = self._sockets[server.name].getsockname()[1]

    def progress(self) -> dict[str, Any]:
        """Whether it is ready, and what is waited for if not."""
        if self._workers is not None:
            return self._workers.progress()
        waiting_for = self._site.waiting_for if self._site is not None else "its process"
        return {"status": "starting" if waiting_for else "ok", "waiting_for": waiting_for, "workers": []}

    async def start(self) -> None:
        """Start everything; returns when all servers answer."""
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
        """Stop everything, sessions closed and workers gone."""
        if self._head is not None:
            await self._head.stop()
        if self._workers is not None:
            await self._workers.stop()
        if self._site is not None:
            await self._site.stop()
        for each in self._sockets.values():
            each.close()

    async def until_failed(self) -> None:
        """Wait for ever, unless the workers cannot be kept alive: then it raises why."""
        if self._workers is not None:
            await self._workers.failed()
        await asyncio.Event().wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
