"""An agent that runs on a server, with its model and its resources: a whole rollout is one request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ludus.agent import Agent, AgentConfig
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.remote.http import ROLLOUT, SEED, Client, connect
from ludus.remote.resources import RemoteConfig, described, verdict_in
from ludus.resources import Resources
from ludus.response import Response
from ludus.runtime.encoding import encode


class Elsewhere(Resources):
    """The resources of a rollout that is played on a server: all that is left of them here is the verdict."""

    Config = RemoteConfig
    shared: Client

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.verdict: Verdict | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: RemoteConfig) -> AsyncIterator[Client]:
        """Connections to the agent's server."""
        async with connect(config.url, config.token_env) as client:
            cls.verifier = (await described(client)).get("info", {}).get("x-ludus-verifier")
            yield client

    async def verify(self, task: Any, response: Response) -> Verdict:
        """What the server found."""
        if self.verdict is None:
            raise Failure("bad_verdict", "the server gave no verdict")
        return self.verdict


class RemoteAgent(Agent):
    """Has a rollout played by an agent server.

    environment = remote_agent(Environment.load("mcqa"), "http://127.0.0.1:8002")
    """

    Config = AgentConfig

    async def act(self, episode: Episode) -> str:
        """Send the row, take over what was played."""
        resources, job = episode.resources, episode.job
        assert isinstance(resources, Elsewhere)
        client = resources.shared
        headers = {ROLLOUT: job.rollout_id, SEED: str(job.seed)}
        reply = await episode.step("agent", episode.limits.rollout, client.post("/run", encode(job.row), headers))
        row = client.checked(reply)
        response = Response.checked(row.get("response"))
        episode.adopt(response, row.get("model_calls") or [], row.get("usage") or response.usage)
        resources.verdict = verdict_in(row, job.row)
        return str(row.get("stop_reason") or "completed")


def remote_agent(environment: Environment, url: str, token_env: str = "LUDUS_TOKEN") -> Environment:
    """The same environment with its rollouts played on a server; its tasks are still checked here."""
    kind: type[Resources] = type(
        environment.resources.__name__, (Elsewhere,), {"Task": environment.resources.Task, "__doc__": Elsewhere.__doc__}
    )
    config = RemoteConfig(url=url, token_env=token_env, compat=environment.config.compat)
    return replace(environment, resources=kind, config=config, agent=RemoteAgent())
