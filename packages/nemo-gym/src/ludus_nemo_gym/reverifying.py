"""`ng_reverify`: sends stored rollouts to the resources servers of their agents, which judge them again.

Each rollout is joined to its row by its indices. A server says by `/reverify_mode` whether it can judge without the
session of the rollout. Ludus's servers can: they run the recorded tool calls again where their verdict needs state.
They do the same for a server whose own code does not say.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ludus.errors import Failure, UserError
from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus_nemo_gym.agent_servers import RunningServers, agent_of
from ludus_nemo_gym.collecting import OutputFiles, read_rollouts
from ludus_nemo_gym.config import GymConfig
from ludus_nemo_gym.head import TOKEN
from ludus_nemo_gym.launch import HostedPart, Launch
from ludus_nemo_gym.materialize import ROLLOUT, TASK
from ludus_nemo_gym.names import AGENTS, MODELS, RESOURCES
from ludus_nemo_gym.servers import references

Row = dict[str, Any]
UNSAFE = "unsafe_"

#: The failures of a judge.
JUDGE_FAILURES = ("judge_failed", "judge", "no_judge")


def resources_only(wire: Callable[[GymConfig], Launch], config: GymConfig) -> tuple[Launch, dict[str, str]]:
    """The launch of a configuration's resources servers alone, and the resources server of each agent."""
    agents = [server for server in config.servers if server.kind == AGENTS]
    played = {agent.name: agent.block.get("resources_server") for agent in agents}
    names = {name: str(reference.get("name")) for name, reference in played.items() if isinstance(reference, dict)}
    resources = [server for server in config.servers if server.kind == RESOURCES]
    judges = {name for server in resources for _, kind, name in references(server.block) if kind == MODELS}
    config.servers = [*resources, *(server for server in config.servers if server.name in judges)]
    launch = wire(config)
    launch.servers = [server for server in launch.servers if server.kind == RESOURCES]
    if not launch.servers:
        raise UserError("the configuration names no resources server", "Example: --resources-server mcqa")
    for server in launch.servers:
        if isinstance(server.part, HostedPart):
            server.part.settings["own_routes"] = False
    return launch, names


class Reverification:
    """One run over the rollouts of a file. With `force`, the output's name says that its rewards are not safe."""

    def __init__(self, inputs: Path, rollouts: Path, output: Path, *, force: bool) -> None:
        self.inputs, self.rollouts = inputs, rollouts
        self.force = force
        self.output = output.with_name(UNSAFE + output.name) if force else output
        self.carried: list[bytes] = []
        self.notes: list[str] = []

    def check_output(self, *, resume: bool, overwrite: bool) -> None:
        """Raise if the output exists and nothing says what to do with it."""
        if self.output in (self.inputs, self.rollouts):
            raise UserError(f"the output {self.output} is also an input", "Choose another output")
        if self.output.exists() and not resume and not overwrite:
            hint = "Add +overwrite=true to replace it, or +resume_from_cache=true to continue it"
            raise UserError(f"{self.output} exists already", hint)

    @contextmanager
    def joined(self, *, judge_failed_only: bool = False) -> Iterator[Path]:
        """A temporary file of rows, each with its stored response. Rollouts that are kept go to `carried`."""
        rows = {_key(row): row for row in read_rollouts(self.inputs)}
        source = OutputFiles(self.rollouts).failures if judge_failed_only else self.rollouts
        if judge_failed_only:
            self.carried = [encode(row) for row in read_rollouts(self.rollouts)]
        with tempfile.NamedTemporaryFile(prefix="ludus-again-", suffix=".jsonl") as file:
            count = 0
            for rollout in read_rollouts(source) if source.exists() else ():
                if judge_failed_only and rollout.get("_ng_failure_class") not in JUDGE_FAILURES:
                    continue
                file.write(encode(self._joined(rollout, rows)) + b"\n")
                count += 1
            file.flush()
            if not count:
                raise UserError(f"{source} holds no rollout to judge again")
            yield Path(file.name)

    def _joined(self, rollout: Row, rows: dict[tuple[str, int, int], Row]) -> Row:
        key = _key(rollout)
        if key not in rows:
            agent, task, repeat = key
            what = f"{self.inputs} has no row for rollout {repeat} of task {task} of {agent}"
            raise UserError(what, "Name the X_materialized_inputs.jsonl of the same collection")
        if not isinstance(rollout.get("response"), dict):
            raise UserError(f"{self.rollouts}: rollout {key[2]} of task {key[1]} has no response")
        return {**rows[key], "response": rollout["response"]}

    def judges(self, running: RunningServers, resources_of: dict[str, str]) -> RunningServers:
        """The resources servers in the place of the agents. Raises if one of them says that it cannot judge again."""
        urls = running.addresses.get(RESOURCES, {})
        judges = {agent: urls[name] for agent, name in resources_of.items() if name in urls}
        modes = {name: asyncio.run(_mode(url)) for name, url in urls.items() if url in judges.values()}
        for name, mode in modes.items():
            if mode == "unknown":
                why = "does not say whether it can judge a stored rollout"
                self.notes.append(f"{name} {why}: the recorded tool calls run again in a new session first")
            elif mode != "stateless" and not self.force:
                hint = "Add +force=true to judge all the same"
                raise UserError(f"{name} says that it cannot judge a stored rollout: {mode}", hint)
        return RunningServers(running.head, {AGENTS: judges})


async def _mode(url: str) -> str:
    async with connect(url, TOKEN) as client:
        try:
            return str(client.checked(await client.get("/reverify_mode")))
        except Failure:
            return "unknown"


def _key(row: Row) -> tuple[str, int, int]:
    return agent_of(row), row[TASK], row[ROLLOUT]
