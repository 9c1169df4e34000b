"""An agent of a configuration as a part of a launch: one of Ludus's agents, or the agent's own code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ludus.environment import Environment, agent_types
from ludus.errors import UserError, did_you_mean
from ludus.folder import read_file
from ludus.game import Game
from ludus.runtime.imports import load_object
from ludus_nemo_gym.launch import AgentPart, HostedPart, Instance, ModelPart, RemotePart, ResourcesPart
from ludus_nemo_gym.names import AGENT_SETTINGS, AGENT_TYPES, AGENTS, MODELS, PREFER_OWN_CODE, SERVER_FIELDS
from ludus_nemo_gym.own_code import hosted_agent
from ludus_nemo_gym.parts import Parts, by_host_and_port, by_url, renamed
from ludus_nemo_gym.search_paths import environment_folder, foreign_code
from ludus_nemo_gym.servers import ServerEntry, fronted_resources
from ludus_nemo_gym.trees import Tree

#: The limits that a `remote_agent` names, and Ludus's names for them.
_LIMITS = {"remote_responses_timeout_secs": "model", "run_timeout_secs": "rollout"}


def agent_part(parts: Parts, server: ServerEntry) -> AgentPart | RemotePart:
    """The part of an agent. Raises if there is no such agent and no such code."""
    if (remote := by_url(server)) is not None:
        return remote
    kind = AGENT_TYPES.get(server.implementation, server.implementation)
    reference = server.block.get("resources_server") or fronted_resources(parts.config.tree, server.name)
    played = parts.resources.get(str(reference.get("name"))) if isinstance(reference, dict) else None
    folder = _folder_of(played)
    defaults = dict(read_file(folder).agent) if folder is not None else {}
    default_kind = str(defaults.pop("type", "simple")) if folder is not None else ""
    is_ours = kind in agent_types() or kind == default_kind
    code = foreign_code(AGENTS, server.implementation, parts.config.files)
    if code is not None and (not is_ours or (parts.config.tree.get(PREFER_OWN_CODE) and not _is_game(folder))):
        return _own_code(parts, server, code.parent, folder)
    if not is_ours:
        if (remote := by_host_and_port(server)) is not None:
            return remote
        what = f"{server.name}: there is no agent {server.implementation}"
        raise UserError(what, did_you_mean(server.implementation, AGENT_TYPES))
    known = load_object(agent_types().get(kind, kind), folder).Config.model_fields
    settings = _settings(parts, server, kind, known)
    resources = parts.reference(server, "resources_server", parts.resources, reference)
    settings = {**defaults, **settings} if kind == default_kind else settings
    if kind == "conversation":
        settings |= _user_settings(parts, resources)
    if server.implementation == "remote_agent":
        return AgentPart(kind, settings, resources, _service(parts, server), _limits(server.block))
    return AgentPart(kind, settings, resources, parts.reference(server, "model_server", parts.models))


def _own_code(parts: Parts, server: ServerEntry, code: Path, environment: Path | None) -> AgentPart:
    """The agent's own code, which asks the resources by NeMo Gym's routes for tools."""
    _refuse_invented_rewards(parts, server)
    if _is_game(environment):
        hint = "Name Ludus's agent for games in the configuration: gymnasium_agent"
        raise UserError(f"{server.name}: the code in {code} cannot play {environment}, a game of Ludus", hint)
    return hosted_agent(parts, server, code)


def _settings(parts: Parts, server: ServerEntry, kind: str, known: Iterable[str]) -> Tree:
    _refuse_invented_rewards(parts, server)
    block = renamed(server.block, AGENT_SETTINGS.get(kind, {}))
    extra = SERVER_FIELDS | {*known, "resources_server", "model_server", "skip_verification"}
    if server.implementation == "remote_agent":
        extra |= {"agent_base_url", *_LIMITS}
    parts.note_unknown(server, [key for key in block if key not in extra], list(known))
    return {key: value for key, value in block.items() if key in known and value is not None}


def _refuse_invented_rewards(parts: Parts, server: ServerEntry) -> None:
    if server.block.get("skip_verification") or parts.config.tree.get("skip_verification"):
        raise UserError(f"{server.name}: skip_verification would invent rewards", "Leave it out")


def _user_settings(parts: Parts, resources: str) -> Tree:
    """The simulated user's settings. NeMo Gym has them in the resources server, Ludus in the agent."""
    server = next(entry for entry in parts.config.servers if entry.name == resources)
    block, settings = server.block, dict[str, Any]()
    field = next((key for key in ("user_model_server", "simulator_model_server") if block.get(key)), None)
    if field is not None:
        model_settings = parts.model_settings(server, field, "user", block[field])
        model = (
            {"type": model_settings["user"], **model_settings["user_settings"]}
            if "user_settings" in model_settings
            else model_settings["user"]
        )
        settings["user"] = model
    if isinstance(params := block.get("user_responses_create_params"), dict):
        settings["user_responses_create_params"] = {key: value for key, value in params.items() if key != "input"}
    return settings


def _service(parts: Parts, server: ServerEntry) -> str:
    """The service that decides what a `remote_agent` does. It is a model to the tool loop. Returns its instance."""
    url = server.block.get("agent_base_url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        path = f"{server.name}.{server.kind}.{server.implementation}.agent_base_url"
        raise UserError(f"{server.name}: agent_base_url is not a URL", f"Set it with: '++{path}=http://HOST:PORT'")
    name = f"{server.name}_service"
    part = ModelPart({"type": "remote", "base_url": f"{url.rstrip('/')}/v1"})
    parts.models[name] = part
    parts.services.append(Instance(name, MODELS, "remote", parts.host, None, 1, part))
    return name


def _limits(block: Tree) -> Tree:
    return {name: block[key] for key, name in _LIMITS.items() if block.get(key) is not None}


def _folder_of(part: ResourcesPart | RemotePart | None) -> Path | None:
    """The folder of the Ludus environment that an agent plays."""
    if part is None or part.environment is None or isinstance(part, HostedPart):
        return None
    return Path(part.environment) if "/" in part.environment else environment_folder(part.environment)


def _is_game(folder: Path | None) -> bool:
    return folder is not None and issubclass(Environment.load(str(folder)).resources, Game)
