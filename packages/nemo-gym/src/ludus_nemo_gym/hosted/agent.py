"""An agent that was written for NeMo Gym plays rollouts: its code runs unchanged, and its model is the rollout's.

The agent gets a row at `/run` and does the rest itself: it asks the model, calls tools, and asks for the verdict. It
reaches all of them through a front on loopback, which records every model call and attributes what fails.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any

from pydantic import ConfigDict, PositiveInt, model_validator

from ludus.agent import Agent, AgentConfig
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.remote.http import ROLLOUT, Client
from ludus.remote.verdicts import verdict_in
from ludus.response import Response
from ludus.runtime.encoding import encode
from ludus_nemo_gym.hosted.front import Front, PlayedRollout
from ludus_nemo_gym.hosted.model_servers import HOST, FailedCalls, model_servers
from ludus_nemo_gym.hosted.resources import HostedResources, verify_responses
from ludus_nemo_gym.hosted.settings import HostedSettings
from ludus_nemo_gym.hosted.turns import answer_in_session
from ludus_nemo_gym.names import MODELS, POLICY_FIELDS, POLICY_SERVER, RESOURCES, ROLLOUTS_IN_PATHS
from ludus_nemo_gym.servers import references
from ludus_nemo_gym.trees import Tree


class HostedAgent(Agent):
    """Lets an agent of NeMo Gym play each rollout.

    agent: {type: nemo_gym, source: ../responses_api_agents/my_agent}
    """

    class Config(HostedSettings, AgentConfig):
        """Where the agent's code is. Any other setting replaces a value of its configuration."""

        model_config = ConfigDict(extra="allow")
        part = "agent"

        #: the environment server in front of it that opens its sessions, if it has no resources server of its own
        environment_server: dict[str, Any] = {}
        #: the most model calls of a rollout
        max_model_calls: PositiveInt = 1000

        @model_validator(mode="before")
        @classmethod
        def _from_folder(cls, values: Any) -> Any:
            """A path as `source` stands for the folder of the agent and, without an `instance`, its configuration."""
            from ludus_nemo_gym.hosted.adapter import agent_settings, agent_source

            if not isinstance(values, dict) or not isinstance(which := values.get("source"), str):
                return values
            settings = {"source": agent_source(which)} if "instance" in values else agent_settings(which)
            return {**settings, **{key: value for key, value in values.items() if key != "source"}}

    config: Config
    _front: Front | None = None
    _client: Client | None = None
    _failed: FailedCalls | None = None  # of the models that the agent calls besides the policy

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Start the front, the models that the agent calls besides the policy, and the agent."""
        config = self.config
        async with Front() as front:
            known = {name: _entry(kind, front.port) for name, kind in self._fronted().items()}
            others = {name: spec for name, spec in config.specs().items() if name not in known}
            async with model_servers(config.instance, others) as (models, failed):
                tree = {**models, **known, **_policy(front.port)}
                async with config.transport(tree) as transport:
                    playing = copy.copy(self)
                    playing._front, playing._client, playing._failed = front, Client(transport), failed
                    yield playing

    async def run_metrics(self, rollouts: Iterable[Any], own: dict[str, float]) -> dict[str, float]:
        """What the agent's `/aggregate_metrics` computes, if its code computes metrics of its own.

        The agent is started once more for it. If it asks its resources server for metrics, it gets `own`.
        """
        if not self.config.source.computes_metrics():
            return {}
        body = encode({"verify_responses": list(verify_responses(rollouts))})
        async with self.share() as agent:
            started: Any = agent
            front, client = started._front, started._client
            front.metrics = {"group_level_metrics": [], "agent_metrics": own, "key_metrics": own}
            reply = client.checked(await client.post("/aggregate_metrics", body))
        figures = reply.get("key_metrics") if isinstance(reply, dict) else None
        return figures if isinstance(figures, dict) else {}

    def _fronted(self) -> dict[str, str]:
        """The servers that the front stands for: the policy, and every resources server."""
        fronted = {POLICY_SERVER: MODELS}
        for path, kind, name in references(self.config.own_block()):
            is_policy = kind == MODELS and (path in POLICY_FIELDS or name == POLICY_SERVER)
            if kind == RESOURCES or is_policy:
                fronted[name] = kind
        return fronted

    async def act(self, episode: Episode) -> str:
        """Send the row to the agent, and take over its response and its verdict."""
        if self._front is None:
            raise RuntimeError("a hosted agent needs its front: use `async with agent.share() as agent`")
        with self._front.register(episode, self.config.max_model_calls) as rollout:
            work = self._run(episode, rollout)
            return await episode.step("agent", episode.limits.rollout, work)

    async def _run(self, episode: Episode, rollout: PlayedRollout) -> str:
        client, job = self._client, episode.job
        assert client is not None
        if self.config.environment_server:
            return await self._answer(episode, rollout, client)
        indices = {"_ng_task_index": _number(job.task_id), "_ng_rollout_index": job.repeat}
        row = {**indices, **job.row, "_ng_rollout_id": rollout.key}
        reply = await client.post("/run", encode(row), {ROLLOUT: rollout.key})
        failure = rollout.failed() or self._failed_call(episode, rollout.key)
        if failure is not None:
            raise failure
        result = client.checked(reply)
        if not isinstance(result, dict):
            raise Failure("bad_response", f"the agent's reply is not a JSON object: {str(result)[:200]}")
        verdict = verdict_in(result, row)
        verdict.mask = verdict.mask or rollout.mask
        rollout.settle()
        _take_over(episode, Response.checked(result.get("response")))
        episode.resources = _Judged(episode.resources, verdict)  # type: ignore[assignment]
        return rollout.stop_reason or str(result.get("stop_reason") or "completed")

    async def _answer(self, episode: Episode, rollout: PlayedRollout, client: Client) -> str:
        """Let the agent answer the prompt in a session. The episode asks for the verdict itself."""
        front, seeded = self.config.environment_server, getattr(episode.resources, "seeded", None)
        url = f"{rollout.url}/ng-rollout/{rollout.key}"
        try:
            answer = await answer_in_session(client, front, rollout.key, url, episode.job.row, seeded)
        except Failure as failure:
            raise rollout.failed() or self._failed_call(episode, rollout.key) or failure from None
        if (failed := rollout.failed() or self._failed_call(episode, rollout.key)) is not None:
            raise failed
        rollout.settle()
        _take_over(episode, Response.checked(answer))
        return rollout.stop_reason or "completed"

    def _failed_call(self, episode: Episode, rollout: str) -> Failure | None:
        """A call of a judge or a simulated user that failed, of the agent or of its hosted resources."""
        resources = episode.resources
        registers = [self._failed, resources.shared.failed if isinstance(resources, HostedResources) else None]
        return next((failure for calls in registers if calls and (failure := calls.take(rollout)) is not None), None)


class _Judged:
    """The resources of a rollout whose agent has asked for the verdict."""

    def __init__(self, resources: Any, verdict: Verdict) -> None:
        self._resources, self._verdict = resources, verdict

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resources, name)

    async def verify(self, task: Any, response: Response) -> Verdict:
        """The verdict that the agent reported."""
        return self._verdict

    async def close(self) -> None:
        """Close the session."""
        from ludus.runtime.threads import awaited

        await awaited(self._resources.close)


def _take_over(episode: Episode, response: Response) -> None:
    """Make the response that the agent had judged the response of the rollout.

    The model calls keep their tokens. If the agent's items are not those of its calls, the calls have no place in them.
    """
    if not episode.calls:
        episode.adopt(response, [], response.usage)
        return
    ours = episode.response
    if [item.get("type") for item in ours.output] != [item.get("type") for item in response.output]:
        for call in episode.calls:
            call["items"] = 0
            call.pop("at", None)
    usage = {"usage": ours.usage} if ours.usage else {}
    episode.conclude(Response({**response.data, **usage, "tools": ours.tools or response.data.get("tools") or []}))


def _number(task_id: str) -> int:
    """A number for a task, the same in every run."""
    return int.from_bytes(blake2b(task_id.encode(), digest_size=4).digest(), "big")


def _entry(kind: str, port: int) -> Tree:
    return {kind: {"ludus": {"host": HOST, "port": port, ROLLOUTS_IN_PATHS: True}}}


def _policy(port: int) -> Tree:
    return {
        "policy_base_url": f"http://{HOST}:{port}/v1",
        "policy_api_key": "none",
        "policy_model_name": "policy",
    }
