"""Running agent servers: found through the head, and sent rows to play.

Each row goes unchanged to the agent that it names. The reply is a verified rollout, or a failure with its stage and
kind. Any server that has the routes of NeMo Gym's agents works.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ludus.agent import Agent
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import Failure, UserError
from ludus.model import Model
from ludus.outcome import RECORD, Verdict
from ludus.record import is_record
from ludus.remote.http import SEED, Client, connect
from ludus.remote.verdicts import failure_in, is_masked, verdict_in
from ludus.resources import Resources, ResourcesConfig
from ludus.response import Response
from ludus.runtime.encoding import encode
from ludus.runtime.keys import without_keys_and_paths
from ludus_nemo_gym.head import ANY_ADDRESS, TOKEN, configuration_of
from ludus_nemo_gym.names import AGENTS
from ludus_nemo_gym.servers import find_servers

START = (
    "Start servers with: gym env start --resources-server NAME --model-type TYPE, or with ng_run '+config_paths=[...]'"
)
Row = dict[str, Any]

#: The characters of an error's body that a failed row keeps.
MOST_BODY = 2000

#: The fields of a Ludus record that NeMo Gym's rows do not have.
_LUDUS_FIELDS = RECORD - {"reward", "response", "reward_components", "receipt"}


@dataclass
class RunningServers:
    """The servers that a head lists: for each kind, the URL of every instance."""

    head: str
    addresses: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def agents(self) -> dict[str, str]:
        """The agents' URLs."""
        return self.addresses.get(AGENTS, {})


async def find_running(head: str) -> RunningServers:
    """Ask the head which servers run."""
    try:
        tree = await configuration_of(head)
    except Failure as error:
        hint = f"Set {TOKEN}" if error.kind == "http_401" else START
        raise UserError(error.cause, f"{hint}, or set the port of their head: ++head_server.port=PORT") from error
    servers, _ = find_servers(tree)
    running = RunningServers(head)
    for server in servers:
        host, port = str(server.block.get("host")), server.block.get("port")
        host = ANY_ADDRESS.get(host, host)
        running.addresses.setdefault(server.kind, {})[server.name] = f"http://{host}:{port}"
    return running


class AgentServerResources(Resources):
    """The local resources of a rollout that an agent server plays. They hold only the server's verdict."""

    class Config(ResourcesConfig):
        """The agents and their URLs."""

        agents: dict[str, str] = {}

    shared: dict[str, Client]
    verdict: Verdict | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[dict[str, Client]]:
        """Open a client for every agent."""
        async with AsyncExitStack() as stack:
            yield {name: await stack.enter_async_context(connect(url, TOKEN)) for name, url in config.agents.items()}

    async def verify(self, task: Any, response: Response) -> Verdict:
        """The server's verdict."""
        if self.verdict is None:
            raise Failure("bad_verdict", "the server gave no verdict")
        return self.verdict


class RunningAgents(Agent):
    """Sends each row to the agent that it names. `take` removes a reply from `results`, and `take_body` one of an error
    from `bodies`.
    """

    def __init__(self, route: str = "/run") -> None:
        super().__init__()
        self.route = route
        self.results: dict[str, Row] = {}
        self.bodies: dict[str, str] = {}

    async def act(self, episode: Episode) -> str:
        """Send the row and adopt the rollout in the reply."""
        resources, job = episode.resources, episode.job
        assert isinstance(resources, AgentServerResources)
        client = resources.shared[agent_of(job.row)]
        work = client.post(self.route, encode(job.row), {SEED: str(job.seed)})
        reply = await episode.step("agent", episode.limits.rollout, work)
        if reply.status != 200:
            self.bodies[job.rollout_id] = without_keys_and_paths(reply.body.decode("utf-8", "replace"))[:MOST_BODY]
        result = client.checked(reply)
        if not isinstance(result, dict):
            raise Failure("bad_response", f"the agent's reply is not a JSON object: {str(result)[:200]}")
        self.results[job.rollout_id] = result
        if (failure := failure_in(result)) is not None:
            raise failure
        response = Response.checked(result.get("response"))
        episode.adopt(response, [{"items": len(response.output)}], response.usage)
        resources.verdict = verdict_in(result, job.row)
        return str(result.get("stop_reason") or "completed")

    def take_body(self, rollout_id: str) -> str | None:
        """Remove and return the start of an error's body; None if there was none."""
        return self.bodies.pop(rollout_id, None)

    def take(self, rollout_id: str) -> Row | None:
        """Remove and return the reply for a rollout, with NeMo Gym's fields only; None if there was none."""
        result = self.results.pop(rollout_id, None)
        if result is not None and is_masked(result):
            config = result.get("instance_config")
            inner = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
            result = {**result, "mask_sample": True, "instance_config": inner}
        if result is None or not is_record(result):
            return result
        hidden = result.get("task_fields")
        row = {key: value for key, value in result.items() if key not in _LUDUS_FIELDS and key != "task_id"}
        return row | (hidden if isinstance(hidden, dict) else {})


class PlaceholderModel(Model):
    """The model that a collection requires. It is never called: the agent servers have their models."""

    connects = True

    def __init__(self, head: str) -> None:
        self.name = f"the servers of {head}"


def running_environment(agents: dict[str, str], route: str = "/run") -> tuple[Environment, RunningAgents]:
    """An environment whose rollouts running agents play, and the agent object that holds their replies."""
    agent = RunningAgents(route)
    name = ", ".join(agents)
    return Environment(name, AgentServerResources, agent, AgentServerResources.Config(agents=agents)), agent


def agent_of(row: Row) -> str:
    """The name of the agent that a row is for; empty if the row names none."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""
