"""An agent on a server, which has the model and the resources too: a whole rollout is one request."""

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
from ludus.record import read_tool_errors
from ludus.remote.http import ROLLOUT, SEED, Client, connect
from ludus.remote.resources import RemoteConfig, openapi_document, stand_in, verifier_in
from ludus.remote.verdicts import verdict_in
from ludus.resources import Resources
from ludus.response import Response
from ludus.runtime.encoding import encode


class VerdictFromServer(Resources):
    """The resources of a rollout that an agent server plays. In this process they only hold the server's verdict."""

    Config = RemoteConfig
    shared: Client
    environment_name = ""  #: the environment that the server must serve; any, if empty
    verifier = ""

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.verdict: Verdict | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: RemoteConfig) -> AsyncIterator[Client]:
        """Connect to the agent server."""
        async with connect(config.url, config.token_env) as client:
            cls.verifier = verifier_in(await openapi_document(client, "agent", cls.environment_name)) or ""
            yield client

    async def verify(self, task: Any, response: Response) -> Verdict:
        """The server's verdict."""
        if self.verdict is None:
            raise Failure("bad_verdict", "the server gave no verdict")
        return self.verdict


class RemoteAgent(Agent):
    """Lets an agent server play the rollout.

    environment = remote_agent(Environment.load("mcqa"), "http://127.0.0.1:8002")
    """

    Config = AgentConfig

    async def act(self, episode: Episode) -> str:
        """Send the row, and take over the trajectory and the verdict of the reply."""
        resources, job = episode.resources, episode.job
        assert isinstance(resources, VerdictFromServer)
        client = resources.shared
        headers = {ROLLOUT: job.rollout_id, SEED: str(job.seed)}
        reply = await episode.step("agent", episode.limits.rollout, client.post("/run", encode(job.row), headers))
        row = client.checked(reply)
        response = Response.checked(row.get("response"))
        episode.adopt(response, row.get("model_calls") or [], row.get("usage") or response.usage)
        episode.tool_errors.extend(read_tool_errors(row))
        resources.verdict = verdict_in(row, job.row)
        return str(row.get("stop_reason") or "completed")


def remote_agent(environment: Environment, url: str, token_env: str = "LUDUS_TOKEN") -> Environment:
    """The environment with its rollouts played by an agent server. Rows are still checked here."""
    return replace(stand_in(environment, VerdictFromServer, url, token_env), agent=RemoteAgent())
