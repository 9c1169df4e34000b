"""Resources servers of a configuration whose code is an `app.py` on disk: what is needed to run that code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ludus_nemo_gym.config import GymConfig
from ludus_nemo_gym.hidden import hide
from ludus_nemo_gym.launch import HostedPart, Instance
from ludus_nemo_gym.names import AGENT_TYPES, AGENTS
from ludus_nemo_gym.servers import ServerEntry
from ludus_nemo_gym.trees import Tree


def hosted_part(
    config: GymConfig, server: ServerEntry, folder: Path, models: Mapping[str, str | Tree], secrets: dict[str, str]
) -> HostedPart:
    """A server with its whole block, the rest of the configuration, and the models that it names.

    The values of secrets are added to `secrets`, by environment variable.
    """
    names = set(_texts(server.block))
    others = {name: value for name, value in config.tree.items() if name != server.name}
    settings: Tree = {
        "instance": server.name,
        "block": hide(server.block, config.secrets, secrets),
        "tree": hide(others, config.secrets, secrets),
        "set_with": f"++{server.name}.{server.kind}.{server.implementation}.",
        "models": {name: spec for name, spec in models.items() if name in names},
    }
    turns = any(_is_played_by(agent, server) for agent in config.servers)
    return HostedPart(str(folder.resolve()), settings, instance=server.name, turns=turns)


def in_one_process(instances: list[Instance]) -> list[str]:
    """Take `num_workers` from instances if one of them runs its own code. Returns a note if that changes something."""
    hosted = next((instance.name for instance in instances if isinstance(instance.part, HostedPart)), None)
    if hosted is None or all(instance.num_workers == 1 for instance in instances):
        return []
    for instance in instances:
        instance.num_workers = 1
    return [f"num_workers has no effect: {hosted} runs its own code, whose sessions are in one process"]


def _is_played_by(agent: ServerEntry, server: ServerEntry) -> bool:
    """Whether an agent for games plays a server."""
    reference = agent.block.get("resources_server")
    plays = agent.kind == AGENTS and isinstance(reference, dict) and reference.get("name") == server.name
    return plays and AGENT_TYPES.get(agent.implementation, agent.implementation) == "gymnasium"


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node
