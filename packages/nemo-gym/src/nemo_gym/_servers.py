"""Servers of ours on a thread of their own, and rollouts played there without a detour over HTTP.

A trainer starts the servers in one place and asks for rollouts in another, and all that it passes on is the port of the
head. So the servers of this process are known by that port.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import orjson

from ludus.errors import Failure
from ludus.http.app import App
from ludus.http.in_process import ask
from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving
from ludus.serve.worker import run
from nemo_gym._errors import RolloutError
from nemo_gym._results import Row, result_of

TOKEN = "LUDUS_TOKEN"
Played = tuple[Row, Row]

#: A rollout here ends within its environment's limits. One that is played elsewhere is given up after this long.
LONGEST_ELSEWHERE = 4 * 3600.0

#: How many rollouts are played at the same time; it is what one of our servers answers at once.
AT_ONCE = 16384

_open: dict[int, Servers] = {}


def servers_at(port: int | None) -> Servers | None:
    """The servers of this process whose head has that port; without a port, the only ones there are."""
    if port is None:
        return next(iter(_open.values())) if len(_open) == 1 else None
    return _open.get(port)


class Servers:
    """Everything that a plan names, served and played on a thread. `elsewhere` are agents that others run."""

    def __init__(self, plan: Plan, elsewhere: Mapping[str, str]) -> None:
        self._serving = Serving(plan)
        self._elsewhere = dict(elsewhere)
        self._token = plan.token()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: BaseException | None = None
        self._rollouts: set[asyncio.Task[Any]] = set()
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._body, name="ludus-servers", daemon=True)
        self._over: asyncio.Event
        self._places: asyncio.Semaphore

    def start(self) -> None:
        """Start, and return when every server answers. Raises what kept one from starting."""
        self._thread.start()
        self._ready.result()
        port = self._serving.plan.head_port
        assert port is not None
        _open[port] = self

    def poll(self) -> None:
        """Raise if the servers are not all there any more."""
        if not self._thread.is_alive():
            raise RuntimeError("the servers have ended") from self._ended

    def stop(self) -> None:
        """End every rollout and every server."""
        if self._thread.is_alive():
            self._ready.result().call_soon_threadsafe(self._over.set)
            self._thread.join()
        for port in [port for port, each in _open.items() if each is self]:
            del _open[port]

    def play(self, row: Row) -> Future[Played]:
        """Have the agent that a row names play it."""
        self.poll()
        return asyncio.run_coroutine_threadsafe(self._play(row), self._ready.result())

    def _body(self) -> None:
        try:
            run(self._serve())
        except BaseException as error:
            self._ended = error
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._over, self._places = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
        async with self._serving as serving:
            self._ready.set_result(asyncio.get_running_loop())
            failing, stopping = (asyncio.create_task(each) for each in (serving.until_failed(), self._over.wait()))
            try:
                await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if failing.done():
                    failing.result()
            finally:
                for task in (failing, stopping, *self._rollouts):
                    task.cancel()
                await asyncio.gather(failing, stopping, *self._rollouts, return_exceptions=True)

    async def _play(self, row: Row) -> Played:
        task = asyncio.current_task()
        assert task is not None
        self._rollouts.add(task)
        try:
            async with self._places:
                return row, await play(row, self._agents(), self._token, f"{next(self._numbers)}")
        except asyncio.CancelledError:
            raise RolloutError.saying(503, "the servers were shut down during this rollout") from None
        finally:
            self._rollouts.discard(task)

    def _agents(self) -> dict[str, App | str]:
        serving = self._serving
        agents = [server for server in serving.plan.servers if server.kind == "responses_api_agents"]
        return {**{each.name: serving.apps.get(each.name) or each.url for each in agents}, **self._elsewhere}


async def play(row: Row, agents: Mapping[str, App | str], token: str | None, name: str) -> Row:
    """Have one row played by the agent that it names, here or at an address, and give back the trainer's result."""
    agent = _agent_in(row)
    if agent not in agents:
        known = ", ".join(sorted(agents)) or "none"
        raise RolloutError.saying(404, f"agent_ref names {agent[:80]!r}, and the agents are: {known}")
    where, body = agents[agent], encode(row)
    if isinstance(where, App):
        status, content = await ask(where, f"/ng-rollout/{name}/run", body, token=token)
    else:
        status, content = await _post(where, body)
    if status != 200:
        raise RolloutError(status, content)
    try:
        told = orjson.loads(content)
    except orjson.JSONDecodeError:
        told = None
    if not isinstance(told, dict) or "reward" not in told:
        raise RolloutError(502, content)
    return result_of(told)


async def _post(url: str, body: bytes) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(LONGEST_ELSEWHERE), connect(url, TOKEN) as client:
            reply = await client.post("/run", body)
            return reply.status, reply.body
    except TimeoutError:
        raise RolloutError.saying(504, f"{url} did not answer within {LONGEST_ELSEWHERE:g} s") from None
    except Failure as failure:
        raise RolloutError.of(failure) from failure


def _agent_in(row: Row) -> str:
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    if not isinstance(name, str):
        raise RolloutError.saying(422, "the row names no agent: agent_ref.name is missing")
    return name
