"""Rules of a parsed configuration: every agent has an environment server, and servers say whom they work with."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ludus_nemo_gym.names import AGENTS, ENVIRONMENTS, MODELS, RELAY, RESOURCES
from ludus_nemo_gym.servers import ServerEntry, environment_servers, find_servers, fronted_agents

from nemo_gym.config_types import (
    AgentWithoutEnvironmentServerError,
    UnsupportedAgentPairingError,
    UnsupportedModelPairingError,
)

Tree = dict[str, Any]

_ALLOW = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"


def with_relays(tree: Tree) -> Tree:
    """The configuration with a relay for each agent that no environment server fronts."""
    fronted = {agent for server in environment_servers(tree) for agent in fronted_agents(server.block)}
    alone = [server for server in find_servers(tree)[0] if server.kind == AGENTS and server.name not in fronted]
    if not alone:
        return tree
    names = ", ".join(server.name for server in alone)
    if tree.get("error_on_agent_without_environment_server"):
        hint = f"Add a block with {ENVIRONMENTS}.{RELAY}.agent_server for each"
        raise AgentWithoutEnvironmentServerError(f"no environment server fronts {names}. {hint}")
    warnings.warn(f"no environment server fronts {names}: relays are added", DeprecationWarning, stacklevel=2)
    relays = {
        relay_name(server): {
            ENVIRONMENTS: {RELAY: {"entrypoint": "app.py", "agent_server": {"type": AGENTS, "name": server.name}}}
        }
        for server in alone
    }
    return {**tree, **{name: relay for name, relay in relays.items() if name not in tree}}


def relay_name(agent: ServerEntry) -> str:
    """The name of an agent's relay: the agent's without its type, or without `_agent`."""
    kind = agent.implementation.rpartition("/")[2]
    name = agent.name.removesuffix(f"_{kind}")
    return f"{name if name != agent.name else agent.name.removesuffix('_agent')}_environment_server"


def check_pairings(tree: Tree) -> None:
    """Raise if an agent, or its model server, is of a type that its resources server does not allow."""
    allowed = str(os.environ.get(_ALLOW, "")).lower() not in ("", "0", "false") or tree.get("allow_unsupported_pairing")
    if allowed:
        return
    servers = {server.name: server for server in find_servers(tree)[0]}
    hint = f"Choose another one, or set allow_unsupported_pairing: true or {_ALLOW}=1"
    for agent in (server for server in servers.values() if server.kind == AGENTS):
        for resources in _named(agent, servers, RESOURCES):
            agents = resources.block.get("allowed_agents")
            if agents and agent.implementation not in agents:
                what = f"{resources.name} does not allow the agent {agent.name} of type {agent.implementation}"
                raise UnsupportedAgentPairingError(f"{what}, only {', '.join(agents)}. {hint}")
            models = resources.block.get("allowed_model_types")
            for model in _named(agent, servers, MODELS):
                if models and model.implementation not in models:
                    what = f"{resources.name} does not allow the model server {model.name} of type"
                    types = f"{model.implementation}, only {', '.join(models)}"
                    raise UnsupportedModelPairingError(f"{what} {types}. {hint}")


def _named(agent: ServerEntry, servers: dict[str, ServerEntry], kind: str) -> list[ServerEntry]:
    """The servers of one kind that the fields of an agent name."""
    references = (value for value in agent.block.values() if isinstance(value, dict) and value.get("type") == kind)
    return [servers[str(ref.get("name"))] for ref in references if str(ref.get("name")) in servers]
