"""Servers and agents of a configuration whose code is an `app.py` on disk: what is needed to run that code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus_nemo_gym.config import POLICY
from ludus_nemo_gym.hidden import hide
from ludus_nemo_gym.interpolation import resolve
from ludus_nemo_gym.launch import AgentPart, HostedPart, Instance
from ludus_nemo_gym.names import AGENT_TYPES, AGENTS, ISOLATE_OWN_CODE, POLICY_FIELDS, POLICY_SERVER, RESOURCES
from ludus_nemo_gym.parts import Parts
from ludus_nemo_gym.servers import (
    ServerEntry,
    environment_servers,
    fronted_agents,
    has_typed_sessions,
    plays,
    references,
    turn_server,
)
from ludus_nemo_gym.trees import Tree


def hosted_part(parts: Parts, server: ServerEntry, folder: Path) -> HostedPart:
    """A resources server with its whole block, the rest of the configuration, and the models that it names."""
    settings = _settings(parts, server, parts.config.tree)
    if has_typed_sessions(parts.config.tree, server.name):
        settings["typed_sessions"] = True
    turns = any(_is_played_by(agent, server) for agent in parts.config.servers)
    return HostedPart(str(folder.resolve()), settings, instance=server.name, turns=turns)


def hosted_agent(parts: Parts, server: ServerEntry, folder: Path) -> AgentPart:
    """An agent with the same. Its `${policy_base_url}` and the like stay: they are the addresses of the rollout."""
    tree = resolve({key: value for key, value in parts.config.unresolved.items() if key not in POLICY}).tree
    settings = {"source": str(folder.resolve()), **_settings(parts, server, tree)}
    if (front := turn_server(tree, server)) is not None:
        settings["environment_server"] = front
    policy = next((field for field in POLICY_FIELDS if server.block.get(field)), POLICY_FIELDS[0])
    unnamed = {"name": POLICY_SERVER} if policy not in server.block and POLICY_SERVER in parts.models else None
    model = parts.reference(server, policy, parts.models, unnamed)
    return AgentPart("nemo_gym", settings, _played(parts, server), model)


def in_one_process(instances: list[Instance]) -> list[str]:
    """Take `num_workers` from instances if one of them runs its own code. Returns a note if that changes something."""
    hosted = next((instance.name for instance in instances if isinstance(instance.part, HostedPart)), None)
    if hosted is None or all(instance.num_workers == 1 for instance in instances):
        return []
    for instance in instances:
        instance.num_workers = 1
    return [f"num_workers has no effect: {hosted} runs its own code, whose sessions are in one process"]


def _settings(parts: Parts, server: ServerEntry, tree: Tree) -> Tree:
    """The settings of hosted code (`HostedSettings`). Values of secrets are added to the launch's, by variable."""
    names, config = set(_texts(server.block)), parts.config
    others = {name: value for name, value in tree.items() if name != server.name}
    block = tree[server.name][server.kind][server.implementation]
    settings: Tree = {
        "instance": server.name,
        "block": hide(block, config.secrets, parts.secrets),
        "tree": hide(others, config.secrets, parts.secrets),
        "set_with": f"++{server.name}.{server.kind}.{server.implementation}.",
        "models": {name: parts.model_spec(name) for name in parts.models if name in names},
    }
    return settings if tree.get(ISOLATE_OWN_CODE, True) else {**settings, "isolate": False}


def _played(parts: Parts, agent: ServerEntry) -> str | None:
    """The resources that an agent plays: its own, or those of the environment server in front of it; None if none."""
    fronts = [front for front in environment_servers(parts.config.tree) if agent.name in fronted_agents(front.block)]
    blocks = [agent.block, *(front.block for front in fronts)]
    named = [(path, name) for block in blocks for path, kind, name in references(block) if kind == RESOURCES]
    first = next((name for path, name in named if path == "resources_server"), named[0][1] if named else None)
    return parts.reference(agent, "resources_server", parts.resources, {"name": first}) if first is not None else None


def _is_played_by(agent: ServerEntry, server: ServerEntry) -> bool:
    """Whether an agent for games plays a server."""
    is_agent = agent.kind == AGENTS and plays(agent, server.name)
    return is_agent and AGENT_TYPES.get(agent.implementation, agent.implementation) == "gymnasium"


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node
