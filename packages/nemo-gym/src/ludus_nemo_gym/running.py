"""Servers that run already: found through the head, and asked to play rollouts.

The head says where the agents are. A row goes to the agent that it names, whole; what comes back is a verified rollout,
or a failure with its stage and kind. Any server that speaks like NeMo Gym's agents will do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from ludus.agent import Agent
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import Failure, UserError
from ludus.model import Model
from ludus.outcome import RECORD, Verdict
from ludus.record import is_record
from ludus.remote.http import SEED, Client, connect
from ludus.remote.resources import verdict_in
from ludus.resources import Resources, ResourcesConfig
from ludus.response import Response
from ludus.runtime.encoding import encode
from ludus_nemo_gym.names import AGENTS
from ludus_nemo_gym.servers import find_servers
from ludus_nemo_gym.trees import Tree, plain

TOKEN = "LUDUS_TOKEN"
Row = dict[str, Any]

#: What a record of ours says beside NeMo Gym's fields.
_OURS = RECORD - {"reward", "response", "reward_components", "receipt"}
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclass
class Running:
    """The servers behind a head: for each kind, the address of every instance."""

    head: str
    addresses: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def agents(self) -> dict[str, str]:
        """The agents' addresses."""
        return self.addresses.get(AGENTS, {})


def head_url(tree: Tree) -> str:
    """The head's address, as a configuration says."""
    head = tree.get("head_server")
    head = head if isinstance(head, dict) else {}
    host = str(head.get("host") or tree.get("default_host") or "127.0.0.1")
    return f"http://{_ANYWHERE.get(host, host)}:{head.get('port') or 11000}"


async def find_running(head: str) -> Running:
    """Ask the head which servers there are."""
    async with connect(head, TOKEN) as client:
        try:
            reply = await client.get("/global_config_dict_yaml")
            if reply.status != 200:
                raise client.failure(reply)
        except Failure as error:
            hint = f"Set {TOKEN}" if error.kind == "http_401" else "Start servers with: ng_run '+config_paths=[...]'"
            raise UserError(error.cause, f"{hint}, or say where they are: ++head_server.port=PORT") from error
    servers, _ = find_servers(_configuration(head, reply.body))
    running = Running(head)
    for server in servers:
        host, port = str(server.block.get("host")), server.block.get("port")
        host = _ANYWHERE.get(host, host)
        running.addresses.setdefault(server.kind, {})[server.name] = f"http://{host}:{port}"
    return running


def _configuration(head: str, body: bytes) -> Tree:
    """The tree in the head's answer: YAML inside a JSON string, or YAML as it is."""
    try:
        told = yaml.safe_load(body)
        told = yaml.safe_load(told) if isinstance(told, str) else told
    except yaml.YAMLError as error:
        raise UserError(f"{head} answers with something that is no configuration") from error
    if not isinstance(told, dict):
        raise UserError(f"{head} answers with something that is no configuration")
    tree: Tree = plain(told)
    return tree


class Elsewhere(Resources):
    """What is left here of a rollout that an agent server plays: the verdict that it gave."""

    class Config(ResourcesConfig):
        """The agents and their addresses."""

        agents: dict[str, str] = {}

    shared: dict[str, Client]
    verdict: Verdict | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[dict[str, Client]]:
        """Connections to every agent."""
        async with AsyncExitStack() as stack:
            yield {name: await stack.enter_async_context(connect(url, TOKEN)) for name, url in config.agents.items()}

    async def verify(self, task: Any, response: Response) -> Verdict:
        """What the server found."""
        if self.verdict is None:
            raise Failure("bad_verdict", "the server gave no verdict")
        return self.verdict


class RunningAgents(Agent):
    """Has each row played by the agent that it names. What came back is kept in `results` until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.results: dict[str, Row] = {}

    async def act(self, episode: Episode) -> str:
        """Send the row and take over what was played."""
        resources, job = episode.resources, episode.job
        assert isinstance(resources, Elsewhere)
        client = resources.shared[agent_of(job.row)]
        work = client.post("/run", encode(job.row), {SEED: str(job.seed)})
        told = client.checked(await episode.step("agent", episode.limits.rollout, work))
        if not isinstance(told, dict):
            raise Failure("bad_response", f"the agent answered with no object: {str(told)[:200]}")
        self.results[job.rollout_id] = told
        if kind := told.get("_ng_failure_class"):
            causes = (told[key] for key in told if key.startswith("_ng_failure_") and key != "_ng_failure_class")
            raise Failure(str(kind), next((str(cause) for cause in causes), "the agent says so"), stage="verify")
        response = Response.checked(told.get("response"))
        episode.adopt(response, [{"items": len(response.output)}], response.usage)
        resources.verdict = verdict_in(_masked(told), job.row)
        return str(told.get("stop_reason") or "completed")

    def take(self, rollout_id: str) -> Row | None:
        """The row that a rollout came back as, in NeMo Gym's shape; None where nothing came back."""
        told = self.results.pop(rollout_id, None)
        if told is None or not is_record(told):
            return told
        hidden = told.get("task_fields")
        row = {key: value for key, value in told.items() if key not in _OURS and key != "task_id"}
        return row | (hidden if isinstance(hidden, dict) else {})


class Servers(Model):
    """Stands where a collection wants a model: the agents have their own."""

    connects = True

    def __init__(self, head: str) -> None:
        self.name = f"the servers of {head}"


def running_environment(agents: dict[str, str]) -> tuple[Environment, RunningAgents]:
    """An environment whose rollouts are played by running agents, and the agent that holds what they answered."""
    agent = RunningAgents()
    name = ", ".join(agents)
    return Environment(name, Elsewhere, agent, Elsewhere.Config(agents=agents)), agent


def agent_of(row: Row) -> str:
    """The name of the agent that a row is for; empty where it names none."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""


def _masked(told: Row) -> Row:
    """A row whose mask stands where NeMo RL reads it has it where we do."""
    config = told.get("instance_config")
    masked = isinstance(config, dict) and config.get("mask_sample")
    return {**told, "mask_sample": True} if masked else told
