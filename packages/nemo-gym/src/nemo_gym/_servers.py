"""Ludus's servers on a thread of this process, and rollouts that are played there without HTTP.

A trainer starts the servers in one place and asks for rollouts in another, and passes only the head's port between
them. The servers of this process are therefore registered by that port.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import orjson
from ludus_nemo_gym.in_process import ask

from ludus.errors import Failure
from ludus.http.app import App
from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving
from ludus.serve.worker import run
from nemo_gym._errors import RolloutError
from nemo_gym._results import Row, result_of

TOKEN = "LUDUS_TOKEN"
Played = tuple[Row, Row]

#: The timeout of a rollout on another server. A rollout in this process ends by its environment's limits.
REMOTE_TIMEOUT = 4 * 3600.0

#: Rollouts in flight: as many requests as one of Ludus's servers handles concurrently.
CONCURRENCY = 16384

_started: dict[int, ServersOnThread] = {}


def servers_at(port: int | None) -> ServersOnThread | None:
    """The servers of this process whose head has that port. Without a port: the only servers, if there is one set."""
    if port is None:
        return next(iter(_started.values())) if len(_started) == 1 else None
    return _started.get(port)


class ServersOnThread:
    """Serves a plan and plays rollouts on one thread. `remote_agents` maps agents of other processes to their URLs."""

    def __init__(self, plan: Plan, remote_agents: Mapping[str, str]) -> None:
        self._serving = Serving(plan)
        self._remote_agents = dict(remote_agents)
        self._token = plan.token()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: BaseException | None = None
        self._rollouts: set[asyncio.Task[Any]] = set()
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run_thread, name="ludus-servers", daemon=True)
        self._stopping: asyncio.Event
        self._slots: asyncio.Semaphore

    def start(self) -> None:
        """Start, and return when every server answers. Raises the error of a server that cannot start."""
        self._thread.start()
        self._ready.result()
        port = self._serving.plan.head_port
        assert port is not None
        _started[port] = self

    def poll(self) -> None:
        """Raise if the servers have stopped."""
        if not self._thread.is_alive():
            raise RuntimeError("the servers have stopped") from self._ended

    def stop(self) -> None:
        """Cancel every rollout and stop every server."""
        if self._thread.is_alive():
            self._ready.result().call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        for port in [port for port, servers in _started.items() if servers is self]:
            del _started[port]

    def play(self, row: Row) -> Future[Played]:
        """Start the rollout of a row with the agent that the row names."""
        self.poll()
        return asyncio.run_coroutine_threadsafe(self._play(row), self._ready.result())

    def _run_thread(self) -> None:
        try:
            run(self._serve())
        except BaseException as error:
            self._ended = error
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._stopping, self._slots = asyncio.Event(), asyncio.Semaphore(CONCURRENCY)
        async with self._serving as serving:
            self._ready.set_result(asyncio.get_running_loop())
            failing, stopping = (asyncio.create_task(work) for work in (serving.until_failed(), self._stopping.wait()))
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
            async with self._slots:
                return row, await play(row, self._agents(), self._token, f"{next(self._numbers)}")
        except asyncio.CancelledError:
            raise RolloutError.with_detail(503, "the servers were shut down during this rollout") from None
        finally:
            self._rollouts.discard(task)

    def _agents(self) -> dict[str, App | str]:
        """The agents by name, and by environment where one agent has it: `ludus data prepare` names environments."""
        serving = self._serving
        agents = [server for server in serving.plan.servers if server.kind == "responses_api_agents"]
        named = {server.name: serving.apps.get(server.name) or server.url for server in agents}
        count = Counter(server.environment for server in agents)
        only = {
            server.environment: named[server.name]
            for server in agents
            if server.environment and count[server.environment] == 1
        }
        return {**only, **named, **self._remote_agents}


async def play(row: Row, agents: Mapping[str, App | str], token: str | None, name: str) -> Row:
    """Play a row with the agent that it names, in this process or at a URL, and return the trainer's result."""
    agent = _agent_in(row)
    if agent not in agents:
        known = ", ".join(sorted(agents)) or "none"
        raise RolloutError.with_detail(404, f"agent_ref names {agent[:80]!r}, but the agents are: {known}")
    where, body = agents[agent], encode(row)
    if isinstance(where, App):
        status, content = await ask(where, f"/ng-rollout/{name}/run", body, token=token)
    else:
        status, content = await _post(where, body)
    if status != 200:
        raise RolloutError(status, content)
    try:
        reply = orjson.loads(content)
    except orjson.JSONDecodeError:
        reply = None
    if not isinstance(reply, dict) or "reward" not in reply:
        raise RolloutError(502, content)
    return result_of(reply)


async def _post(url: str, body: bytes) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(REMOTE_TIMEOUT), connect(url, TOKEN) as client:
            reply = await client.post("/run", body)
            return reply.status, reply.body
    except TimeoutError:
        raise RolloutError.with_detail(504, f"{url} did not answer within {REMOTE_TIMEOUT:g} s") from None
    except Failure as failure:
        raise RolloutError.from_failure(failure) from failure


def _agent_in(row: Row) -> str:
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    if not isinstance(name, str):
        raise RolloutError.with_detail(422, "the row names no agent: agent_ref.name is missing")
    return name
