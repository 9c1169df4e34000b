"""A hosted server as the resources of rollouts: its tools, its sessions, its verdicts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pydantic import ConfigDict

from ludus.dialects.usage import complete_usage
from ludus.errors import Failure
from ludus.http.connection import HttpReply
from ludus.outcome import Verdict
from ludus.record import verdict_row
from ludus.remote.http import ROLLOUT, Client
from ludus.remote.resources import RemoteGame, RemoteResources
from ludus.resources import ResourcesConfig
from ludus.response import Response
from ludus.rollout import Rollout
from ludus.runtime.encoding import encode
from ludus.task import digest
from ludus_nemo_gym.hosted.model_servers import FailedCalls, model_servers
from ludus_nemo_gym.hosted.row_schema import row_problems
from ludus_nemo_gym.hosted.served import ServedApp
from ludus_nemo_gym.hosted.settings import HostedSettings
from ludus_nemo_gym.hosted.transports import ServerEnded, ServerTransport

#: Routes of games and of watchers. They are tools where a row offers them, such as the `close` of a browser.
_MAY_BE_TOOLS = {"reset", "step", "close", "health", "metrics"}


class HostedConfig(HostedSettings, ResourcesConfig):
    """Where a server's code is, what its configuration says, and how to run it.

    Any other setting goes to the server: `--set resources.KEY=VALUE` replaces a value of its configuration.
    """

    model_config = ConfigDict(extra="allow")
    part = "resources"

    #: serve the server's own routes; else ours, which run recorded tool calls again to judge a stored rollout
    own_routes: bool = True
    #: begin and end sessions with ids that we give, as NeMo Gym's `single_agent_turn` does
    typed_sessions: bool = False


@dataclass
class Hosted:
    """What the sessions of a hosted server share. `tools` is empty: rows name the tools of such servers."""

    client: Client
    transport: ServerTransport
    failed: FailedCalls
    tools: tuple[dict[str, Any], ...] = ()
    own_routes: bool = True


class HostedResources(RemoteResources):
    """Resources of a server that was written for NeMo Gym. Its code runs unchanged, and its rows name their tools."""

    Config = HostedConfig
    shared: Hosted  # type: ignore[assignment]
    verifier = None
    verifies_once = True  # many servers forget a session with its verdict

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._generation = -1
        self._ids: dict[str, Any] = {}
        self._offered: set[str] = set()
        self._key = uuid4().hex
        self._headers = {ROLLOUT: self._key}

    @classmethod
    @asynccontextmanager
    async def share(cls, config: HostedConfig) -> AsyncIterator[Hosted]:  # type: ignore[override]
        """Serve the models that the server calls, and start the server."""
        async with (
            model_servers(config.instance, config.specs()) as (models, failed),
            config.transport(models) as transport,
        ):
            yield Hosted(Client(transport), transport, failed, own_routes=config.own_routes)

    @classmethod
    def application(cls, shared: Hosted, guard: Any) -> ServedApp | None:
        """The server's own routes, behind our guard."""
        return ServedApp(shared.transport, guard) if shared.own_routes else None

    @classmethod
    def row_problems(cls, config: HostedConfig, row: dict[str, Any]) -> list[tuple[str, str]]:
        """What the schema in the server's `task_data.py` says of a row, and fields that a row has twice."""
        return row_problems(config.source.folder, row)

    @classmethod
    async def run_metrics(cls, config: HostedConfig, rollouts: Iterable[Rollout]) -> dict[str, float]:
        """What the server's `/aggregate_metrics` computes, if its code computes metrics of its own.

        The server is started once more for it.
        """
        if not config.source.computes_metrics():
            return {}
        body = encode({"verify_responses": list(verify_responses(rollouts))})
        async with cls.share(config) as hosted:
            reply = hosted.client.checked(await hosted.client.post("/aggregate_metrics", body))
        figures = reply.get("key_metrics") if isinstance(reply, dict) else None
        return figures if isinstance(figures, dict) else {}

    async def _begin(self, path: str, task: Any) -> HttpReply:
        offered = {str(tool.get("name")) for tool in task.tools or () if isinstance(tool, dict)}
        self._offered = offered & _MAY_BE_TOOLS
        try:
            reply = await super()._begin(path, task)
        except ServerEnded:
            reply = await super()._begin(path, task)  # another session ended the server: this one has lost nothing
        self._generation = self.shared.transport.generation
        return reply

    async def verify(self, task: Any, response: Response) -> Verdict:
        """Let the server judge. A verdict that it made after a call of its judge had failed is none."""
        try:
            verdict = await super().verify(task, response)
        except Failure as failure:
            raise self.shared.failed.take(self._key) or failure from None
        if (failed := self.shared.failed.take(self._key)) is not None:
            raise failed
        return verdict

    def _is_tool(self, name: str) -> bool:
        return name in self._offered or super()._is_tool(name)

    def _first_body(self, task: Any) -> bytes:
        if not self.config.typed_sessions:
            return super()._first_body(task)
        row = task.model_dump(mode="json", exclude_unset=True)
        own = next((row[key] for key in ("task_id", "problem_id", "instance_id") if row.get(key) is not None), None)
        task_id = {"taskset": self.config.instance, "task_id": str(own) if own is not None else digest(row)}
        data = {key: value for key, value in row.items() if key != "responses_create_params"}
        nested = data.pop("task_data", None)
        self._ids = {"resources_session_id": uuid4().hex, "episode_id": {"rollout_id": uuid4().hex, "attempt": 0}}
        task_data = {**data, **nested} if isinstance(nested, dict) else data
        return encode({**self._ids, "task_id": task_id, "task_data": task_data})

    async def close(self) -> None:
        """End a session that has an id. Other servers forget a session with its verdict, or never."""
        self.shared.failed.take(self._key)
        if self._ids and self.shared.transport.generation == self._generation:
            reply = await self._post("/close_session", encode(self._ids))
            if reply.status >= 400:
                raise self.shared.client.failure(reply)

    async def pass_on(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> HttpReply:
        """Send a request of this session as an agent made it, with the agent's cookies."""
        self._check_session()
        reply = await self.shared.client.send(method, path, body, headers)
        self._check_session()
        return reply

    async def _post(self, path: str, body: bytes) -> HttpReply:
        self._check_session()
        reply = await super()._post(path, body)
        self._check_session()
        return reply

    def _check_session(self) -> None:
        """Raise a `Failure` if the server has lost the session. A request to a dead server starts it again, so this is
        asked before and after it: a new process must not judge a session that it has never seen."""
        transport = self.shared.transport
        if self._generation not in (-1, transport.generation):
            raise Failure("session_lost", f"the server {transport.url} was started again and has forgotten the session")


class HostedGame(HostedResources, RemoteGame):
    """A game server that was written for NeMo Gym: `/reset` and `/step`."""


def verify_responses(rollouts: Iterable[Rollout]) -> Iterator[dict[str, Any]]:
    """Rollouts as `/aggregate_metrics` wants them: the fields of the verdict and the task, without long ones."""
    numbers: dict[str, int] = {}
    for rollout in rollouts:
        verdict = rollout.verdict
        if verdict is not None:
            row = {key: value for key, value in rollout.job.row.items() if key != "responses_create_params"}
            row |= verdict_row(verdict)
            row["_ng_task_index"] = numbers.setdefault(rollout.task_id, len(numbers))
            row["_ng_rollout_index"] = rollout.job.repeat
            row["response"] = {"usage": complete_usage(rollout.usage)} if rollout.usage else {}
            yield {**row, "mask_sample": True} if verdict.mask else row
