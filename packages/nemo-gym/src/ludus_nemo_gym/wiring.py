"""Translates the servers of a merged configuration into a `Launch`: Ludus's environments, agents and models."""

from __future__ import annotations

import re
import socket

from ludus.errors import UserError
from ludus_nemo_gym.agent_parts import agent_part
from ludus_nemo_gym.config import GymConfig
from ludus_nemo_gym.launch import (
    DEFAULT_HOST,
    HEAD_PORT,
    AgentPart,
    Instance,
    Launch,
    ModelPart,
    RemotePart,
    ResourcesPart,
)
from ludus_nemo_gym.models import model_part, unknown_model
from ludus_nemo_gym.names import AGENTS, MODELS, RELAY, RESOURCES
from ludus_nemo_gym.own_code import in_one_process
from ludus_nemo_gym.parts import Parts, by_host_and_port, by_url
from ludus_nemo_gym.resources_parts import resources_part
from ludus_nemo_gym.search_paths import foreign_code
from ludus_nemo_gym.servers import ServerEntry, environment_servers, fronted_agents
from ludus_nemo_gym.trees import Tree


def wire(config: GymConfig) -> Launch:
    """What a configuration starts. Raises if it names a part that Ludus does not have.

    Models come first, because resources may call one. Agents come last, because they name both.
    """
    servers, tree = config.servers, config.tree
    if not servers:
        hint = "Example: '+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]'"
        raise UserError("the configuration names no server", hint)
    parts = Parts(config, _default_host(tree))
    instances = {
        server.name: _instance(server, _part(parts, server), parts.host)
        for kind in (MODELS, RESOURCES, AGENTS)
        for server in servers
        if server.kind == kind
    }
    for server in environment_servers(tree):
        if server.implementation != RELAY:
            agents = ", ".join(fronted_agents(server.block)) or "no agent"
            what = f"{server.name}: Ludus starts no environment server {server.implementation}"
            parts.notes.append(f"{what}; rows go straight to {agents}")
    head = tree.get("head_server")
    head = head if isinstance(head, dict) else {}
    parts.notes += in_one_process(list(instances.values()))
    return Launch(
        [*(instances[server.name] for server in servers), *parts.services],
        str(head.get("host") or parts.host),
        HEAD_PORT if (port := _port(head, "port", "head_server.port", least=0)) is None else port,
        _port_range(tree),
        bool(tree.get("dry_run")),
        parts.notes,
        parts.secrets,
    )


def _part(parts: Parts, server: ServerEntry) -> ModelPart | ResourcesPart | AgentPart | RemotePart:
    """The part of a server. Those of models and resources are remembered: others name them."""
    if server.kind == MODELS:
        parts.models[server.name] = model = _model(parts, server)
        return model
    if server.kind == RESOURCES:
        parts.resources[server.name] = resources = resources_part(parts, server)
        return resources
    return agent_part(parts, server)


def _instance(server: ServerEntry, part: ModelPart | ResourcesPart | AgentPart | RemotePart, host: str) -> Instance:
    block = server.block
    host, workers = str(block.get("host") or host), int(block.get("num_workers") or 1)
    return Instance(server.name, server.kind, server.implementation, host, block.get("port"), workers, part)


def _model(parts: Parts, server: ServerEntry) -> ModelPart | RemotePart:
    part = by_url(server) or model_part(server.name, server.implementation, server.block)
    part = part or by_host_and_port(server)
    if part is None:
        raise _not_started(server) or unknown_model(server.name, server.implementation)
    if isinstance(part, ModelPart):
        if part.key is not None:
            variable = f"LUDUS_KEY_{re.sub(r'[^A-Z0-9]', '_', server.name.upper())}"
            while variable in parts.secrets:
                variable += "_"
            parts.secrets[variable] = part.key
            part.block["api_key_env"] = variable
        parts.note_unknown(server, part.unknown, [])
    return part


def _not_started(server: ServerEntry) -> UserError | None:
    """The error for a model server whose `app.py` is on disk: Ludus does not run it."""
    code = foreign_code(server.kind, server.implementation)
    if code is None:
        return None
    what = f"{server.name}: {code} is not Ludus's code, and Ludus does not start it"
    path = f"{server.name}.{server.kind}.{server.implementation}"
    return UserError(what, f"Start it yourself, then name its address: '++{path}.url=http://HOST:PORT'")


def _default_host(tree: Tree) -> str:
    if tree.get("default_host"):
        return str(tree["default_host"])
    if not tree.get("use_absolute_ip"):
        return DEFAULT_HOST
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise UserError("cannot find this machine's address", "Set it with: ++default_host=ADDRESS") from error


def _port_range(tree: Tree) -> tuple[int, int] | None:
    """The ports that servers may use, if the configuration limits them."""
    low, high = (_port(tree, f"port_range_{end}", f"port_range_{end}") for end in ("low", "high"))
    if low is None and high is None:
        return None
    return (low or 10001, high or 20000)


def _port(tree: Tree, key: str, name: str, least: int = 1) -> int | None:
    value = tree.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value < 65536):
        return value
    raise UserError(f"{name} {value!r:.40} is not a port from {least} to 65535", f"Example: ++{name}=11000")
