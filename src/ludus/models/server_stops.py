"""Servers that stop generating while their weights change, all at once, with a record of what each of them did."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import orjson

from ludus.errors import Failure, UserError
from ludus.models.pool import Endpoint
from ludus.models.transport import Transport

#: Seconds that a server may take to finish what it generates, and to answer otherwise.
DRAIN_SECONDS, ANSWER_SECONDS = 1800.0, 30.0

#: The stops that the statistics show.
_SHOWN = 100

#: A route and the JSON that is sent to it.
Route = tuple[str, dict[str, Any]]


class ServerStops:
    """The stops of a model's servers. `routes` are those that stop a server, by how; `resume` continues it."""

    def __init__(self, transport: Transport, routes: dict[str, Route], resume: Route, hint: str) -> None:
        self._transport, self._routes, self._resume, self._hint = transport, routes, resume, hint
        self._record: deque[dict[str, Any]] = deque(maxlen=_SHOWN)

    def stats(self) -> list[dict[str, Any]]:
        """The last stops: how, and for each server the seconds it took, or why it did not."""
        return list(self._record)

    @asynccontextmanager
    async def stopped(self, how: str) -> AsyncIterator[None]:
        """Stop all servers at once, and continue all of them. A server that cannot be reached generates nothing."""
        if how not in self._routes:
            raise UserError(f"{self._transport.name} cannot {how}", f"Use one of: {', '.join(self._routes)}")
        seconds = DRAIN_SECONDS if how == "drain" else ANSWER_SECONDS
        stops = await self._ask_all(self._routes[how], seconds, lambda _: True)
        entry: dict[str, Any] = {"how": how, "stopped": stops}
        self._record.append(entry)
        try:
            self._check(stops, "stop", self._hint)
            yield
        finally:
            stopped = {stop["url"] for stop in stops if "error" not in stop}
            resumed = await self._ask_all(self._resume, ANSWER_SECONDS, lambda endpoint: endpoint.name in stopped)
            entry["resumed"] = resumed
        self._check(resumed, "go on", "It generates nothing until it does: restart it")

    async def _ask_all(self, route: Route, seconds: float, wanted: Callable[[Endpoint], bool]) -> list[dict[str, Any]]:
        endpoints = [endpoint for endpoint in self._transport.pool.endpoints if wanted(endpoint)]
        return list(await asyncio.gather(*(self._ask(endpoint, route, seconds) for endpoint in endpoints)))

    async def _ask(self, endpoint: Endpoint, route: Route, seconds: float) -> dict[str, Any]:
        began = perf_counter()
        path, body = route
        try:
            async with asyncio.timeout(seconds):
                reply = await self._transport.ask(endpoint, "POST", path, orjson.dumps(body))
        except TimeoutError:
            result: dict[str, Any] = {"error": "timeout"}
        except Failure as error:
            result = {"error": error.kind}
        else:
            result = {} if reply.status == 200 else {"error": f"http_{reply.status}"}
        return {"url": endpoint.name, "seconds": round(perf_counter() - began, 3), **result}

    def _check(self, answers: list[dict[str, Any]], what: str, hint: str) -> None:
        for answer in answers:
            if answer.get("error", "refused") != "refused":
                raise UserError(f"{answer['url']} did not {what}: {answer['error']}", hint)
