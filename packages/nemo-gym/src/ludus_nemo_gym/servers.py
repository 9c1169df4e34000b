"""Servers in a merged configuration: top-level keys that hold exactly one kind with exactly one implementation.

    mcqa:
      resources_servers:
        mcqa: {entrypoint: app.py, domain: knowledge}

An entry that nearly has this shape is reported as a mistake. So is a reference to a server that does not exist.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ludus.errors import did_you_mean
from ludus_nemo_gym.names import AGENTS, DOMAINS, ENVIRONMENTS, KIND_NAMES, KINDS, MODELS, RESOURCES
from ludus_nemo_gym.trees import MISSING, Tree


@dataclass(frozen=True)
class ServerEntry:
    """One server of the configuration. `block` holds its fields."""

    name: str
    kind: str
    implementation: str
    block: Tree


def find_servers(tree: Tree) -> tuple[list[ServerEntry], list[str]]:
    """The servers of a configuration, and one sentence about each malformed one."""
    servers: list[ServerEntry] = []
    problems: list[str] = []
    for name, value in tree.items():
        entry = _entry(name, value)
        if isinstance(entry, ServerEntry):
            servers.append(entry)
        elif entry is not None:
            problems.append(entry)
    return servers, problems


def _entry(name: str, value: Any) -> ServerEntry | str | None:
    """A server, a sentence that says why it is malformed, or None for a key that is no server."""
    if not isinstance(value, dict):
        return None
    kinds = [kind for kind in KINDS if kind in value]
    if not kinds:
        near = [(key, difflib.get_close_matches(key, KINDS, n=1, cutoff=0.8)) for key in value]
        return next((f"{name}.{key} should be {match[0]}" for key, match in near if match), None)
    if len(kinds) > 1:
        return f"{name} is a server of two kinds, {kinds[0]} and {kinds[1]}: keep one"
    kind, implementations = kinds[0], value[kinds[0]]
    if not isinstance(implementations, dict) or not implementations:
        return f"{name}.{kind} names no implementation"
    if len(implementations) > 1:
        first, second = list(implementations)[:2]
        return f"{name}.{kind} has two implementations, {first} and {second}: keep one"
    ((implementation, block),) = implementations.items()
    if not isinstance(block, dict):
        return f"{name}.{kind}.{implementation} must hold a mapping"
    domain = block.get("domain")
    if kind == RESOURCES and domain not in (None, MISSING) and domain not in DOMAINS:
        return f"{name}: there is no domain {domain}. {did_you_mean(str(domain), DOMAINS)}"
    return _checked_address(ServerEntry(name, kind, implementation, block))


def environment_servers(tree: Tree) -> list[ServerEntry]:
    """The environment servers of a configuration, which stand between the collector and agents."""
    return [
        ServerEntry(str(name), ENVIRONMENTS, str(implementation), block)
        for name, value in tree.items()
        if isinstance(value, dict) and isinstance(value.get(ENVIRONMENTS), dict)
        for implementation, block in value[ENVIRONMENTS].items()
        if isinstance(block, dict)
    ]


def has_typed_sessions(tree: Tree, resources: str) -> bool:
    """Whether an environment server opens the sessions of a resources server with ids of its own."""
    fronts = (front for front in environment_servers(tree) if front.implementation.startswith("single_agent_turn"))
    return any(plays(front, resources) for front in fronts)


def turn_server(tree: Tree, agent: ServerEntry) -> Tree | None:
    """The environment server that opens the sessions of an agent, which has no resources server of its own.

    Only what the agent's sessions need of its block.
    """
    if any(kind == RESOURCES for _, kind, _ in references(agent.block)):
        return None
    fronts = (front for front in environment_servers(tree) if front.implementation.startswith("single_agent_turn"))
    block = next((front.block for front in fronts if agent.name in fronted_agents(front.block)), None)
    if block is None:
        return None
    return {key: block[key] for key in ("resources_server", "resources_tool_transports") if key in block}


def fronted_resources(tree: Tree, agent: str) -> Any:
    """The resources server of the environment server in front of an agent; None if there is none."""
    fronts = (front.block for front in environment_servers(tree) if agent in fronted_agents(front.block))
    return next((block["resources_server"] for block in fronts if block.get("resources_server")), None)


def plays(server: ServerEntry, resources: str) -> bool:
    """Whether a server names a resources server as its own."""
    reference = server.block.get("resources_server")
    return isinstance(reference, dict) and reference.get("name") == resources


def fronted_agents(block: Tree) -> list[str]:
    """The agents that the fields of an environment server name. `agent_server` may leave the type out."""
    agents = [
        str(value["name"])
        for field, value in block.items()
        if isinstance(value, dict)
        and "name" in value
        and value.get("type", AGENTS if field == "agent_server" else None) == AGENTS
    ]
    return list(dict.fromkeys(agents))


def _checked_address(server: ServerEntry) -> ServerEntry | str:
    port, workers = server.block.get("port"), server.block.get("num_workers")
    if port is not None and port != MISSING and not (_is_int(port) and 0 < port < 65536):
        return f"{server.name}: port {port!r:.40} is not a port from 1 to 65535"
    if workers is not None and workers != MISSING and not (_is_int(workers) and workers > 0):
        return f"{server.name}: num_workers {workers!r:.40} is not a number from 1 on"
    return server


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def references(node: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Every `{type: ..., name: ...}` that names a server: its path, the kind and the name."""
    if isinstance(node, dict):
        if node.get("type") in KINDS and isinstance(node.get("name"), str):
            yield path, node["type"], node["name"]
        for key, value in node.items():
            yield from references(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from references(value, f"{path}[{index}]")


def broken_references(servers: list[ServerEntry], moved: dict[str, str]) -> list[str]:
    """One sentence about each reference to a server that does not exist."""
    kinds = {server.name: server.kind for server in servers}
    problems = []
    for server in servers:
        for field, kind, name in references(server.block):
            if name == MISSING or kinds.get(name) == kind:
                continue
            where = f"{server.name}: {field}"
            if name in kinds:
                problems.append(f"{where}: {name} is one of {kinds[name]}, not of {kind}")
            elif name in moved:
                problems.append(f"{where}: {name} was moved to {moved[name]}; use _copy there to keep both")
            else:
                known = [server for server, other in kinds.items() if other == kind]
                problems.append(f"{where}: there is no {KIND_NAMES[kind]} {name}. {_advice(kind, name, known)}")
    return problems


def _advice(kind: str, name: str, known: list[str]) -> str:
    if kind == MODELS and not known:
        return "Add one to config_paths, such as responses_api_models/openai_model/configs/openai_model.yaml"
    return did_you_mean(name, known)


def missing_values(node: Any, path: str = "") -> Iterator[str]:
    """The path of every `???`."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from missing_values(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from missing_values(value, f"{path}[{index}]")
    elif node == MISSING:
        yield path
