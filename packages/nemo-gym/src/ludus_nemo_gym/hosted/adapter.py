"""`ludus collect FOLDER`: the folder of a server that was written for NeMo Gym, as one of our environments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.adapter import Listed, Need
from ludus.agents.simple import SimpleAgent
from ludus.dataset import Dataset, count_rows
from ludus.environment import Environment, agent_types
from ludus.errors import UserError, did_you_mean
from ludus.runtime.imports import load_object
from ludus_nemo_gym.config import GymConfig, read_config
from ludus_nemo_gym.hosted.checkout import list_servers, refuse_folder
from ludus_nemo_gym.hosted.needs import Examined, needs_of
from ludus_nemo_gym.hosted.resources import HostedConfig, HostedGame, HostedResources
from ludus_nemo_gym.hosted.source import ENTRY, ServerSource
from ludus_nemo_gym.hosted.task_rows import FLAT_ROWS, holds_tasks
from ludus_nemo_gym.hosted.wired import wired_environment
from ludus_nemo_gym.names import AGENT_SETTINGS, AGENT_TYPES, AGENTS, LICENCE_OF, RESOURCES
from ludus_nemo_gym.search_paths import also_searched
from ludus_nemo_gym.servers import (
    ServerEntry,
    environment_servers,
    fronted_agents,
    has_typed_sessions,
    plays,
    turn_server,
)
from ludus_nemo_gym.trees import Tree

_MISSING_AGENT = "ludus_nemo_gym.hosted.missing_agent:MissingAgent"
_LICENCES = {theirs: ours for ours, theirs in LICENCE_OF.items()}


def adapt(which: str) -> Environment | None:
    """The environment of a server's or an agent's folder; None for any other folder."""
    source = ServerSource.find(which)
    if source is None:
        refuse_folder(which)
        return wired_environment(which)
    config = _configuration(source)
    server = _own_server(config, source)
    if source.kind == RESOURCES:
        return _environment(config, server, source, _agents_of(config, server.name))
    if source.kind == AGENTS:
        return _played_by(config, server, source)
    hint = "Name the folder of a resources server or of an agent"
    raise UserError(f"{which} holds one of {source.kind}, not an environment", hint)


def needs(which: str) -> list[Need] | None:
    """What the server or the agent of a folder needs on this machine; None for any other folder."""
    source = ServerSource.find(which)
    if source is None:
        refuse_folder(which)
        return None
    return list(_examine(source).needs)


def listing(folder: str) -> Iterator[Listed]:
    """The resources servers of a checkout."""
    return list_servers(folder, _examine)


def _examine(source: ServerSource) -> Listed:
    """A server with what it needs. The agent that plays it has needs of its own."""
    config = _configuration(source)
    server = _own_server(config, source)
    agents = [agent for agent in config.servers if agent.kind == AGENTS and plays(agent, server.name)]
    owners = [*agents, server]
    datasets = _datasets(owners, source)
    examined = Examined(source, server, config.tree, owners, datasets)
    examples = [dataset.path for dataset in datasets if dataset.name == "example" and dataset.path is not None]
    return Listed(
        name=source.implementation,
        path=str(source.folder),
        domain=str(server.block.get("domain") or "other"),
        rows=count_rows(examples[0] if examples else source.folder / "data" / "example.jsonl"),
        needs=(*needs_of(examined), *(_agent_need(config, agents[0], source) if agents else ())),
    )


def _agent_need(config: GymConfig, agent: ServerEntry, source: ServerSource) -> Iterator[Need]:
    """The agent that plays a server, if it is not one of ours."""
    if agent.implementation in AGENT_TYPES:
        return
    place = (source.root or source.folder.parent) / AGENTS / agent.implementation
    code = ServerSource.find(str(place))
    if code is None:
        instead = shlex.join(["ludus", "collect", str(source.folder), "--set", "agent.type=simple"])
        yield Need("agent", False, f"{agent.name} plays it, and {place} does not exist", (instead,))
        return
    needs = needs_of(Examined(code, agent, config.tree, [agent], []))
    missing = [need.name for need in needs if need.met is False]
    why = f"{agent.name} plays it{' and misses: ' + ', '.join(missing) if missing else ''}"
    yield Need("agent", not missing, why, (shlex.join(["ludus", "doctor", str(place)]),) if missing else ())


def agent_settings(which: str) -> Tree:
    """The settings of a hosted agent (`HostedAgent.Config`): its source, and what its configuration says."""
    source = agent_source(which)
    config = _configuration(source)
    server = _own_server(config, source)
    return _agent_settings(config, server, source)


def agent_source(which: str) -> ServerSource:
    """The code of an agent's folder."""
    source = ServerSource.find(which)
    if source is None or source.kind != AGENTS:
        raise UserError(f"{which} is not the folder of an agent", "Name a folder with an app.py, as in agents/my_agent")
    return source


def _played_by(config: GymConfig, agent: ServerEntry, source: ServerSource) -> Environment:
    """The environment of an agent: the resources that its configuration names, played by this agent."""
    reference = agent.block.get("resources_server")
    name = reference.get("name") if isinstance(reference, dict) else None
    server = next((other for other in config.servers if other.kind == RESOURCES and other.name == name), None)
    if server is None:
        if not name:
            hint = "Name the folder of a resources server whose configuration names this agent"
            raise UserError(f"{agent.name} names no resources server", hint)
        known = [other.name for other in config.servers if other.kind == RESOURCES]
        hint = did_you_mean(str(name), known) if known else f"Add it to {source.config_file or source.configs[0]}"
        raise UserError(f"{agent.name} names the resources server {name}, which its configuration does not have", hint)
    code = ServerSource.find(str((source.root or source.folder.parent) / RESOURCES / server.implementation))
    if code is not None:
        return _environment(config, server, code, [agent])
    environment = Environment.load(server.implementation)
    environment.configure(_settings_of(config, agent, source))
    environment.agent_names = (agent.name, *environment.agent_names)
    return environment


def _configuration(source: ServerSource) -> GymConfig:
    """The server's configuration file, with the files that it includes."""
    files = [source.config_file] if source.config_file is not None else source.configs[:1]
    with also_searched(source.root):
        config = read_config([f"+config_paths=[{file}]" for file in files], check=False)
    if not files:
        block = {"entrypoint": ENTRY}
        entry = ServerEntry(source.folder.name, source.kind, source.implementation, block)
        config.servers.append(entry)
    return config


def _own_server(config: GymConfig, source: ServerSource) -> ServerEntry:
    """The instance of the configuration that this folder implements."""
    own = [
        server
        for server in config.servers
        if server.kind == source.kind and server.implementation == source.implementation
    ]
    if not own:
        file = source.config_file or next(iter(source.configs), source.folder / "configs")
        others = ", ".join(str(path) for path in source.configs if path != file)
        hint = f"Name another configuration: {others}" if others else f"Add {source.kind}: {source.implementation}"
        raise UserError(f"{file} has no server of {source.kind}/{source.implementation}", hint)
    return own[0]


def _environment(
    config: GymConfig, server: ServerEntry, source: ServerSource, agents: list[ServerEntry]
) -> Environment:
    block = server.block
    settings = _settings_of(config, agents[0], source) if agents else {}
    kind = settings.get("agent.type", "simple")
    environment = Environment(
        name=server.name,
        resources=HostedGame if kind == "gymnasium" else HostedResources,
        agent=SimpleAgent(),
        config=HostedConfig(
            source=source,
            instance=server.name,
            block=block,
            tree=_without(config.tree, server.name),
            typed_sessions=has_typed_sessions(config.tree, server.name),
        ),
        domain=str(block.get("domain") or "other"),
        description=str(block.get("description") or ""),
        value=str(block.get("value") or ""),
        datasets=_datasets([*agents, *_fronts_of(config, server.name, agents), server], source),
        folder=source.folder,
        agent_names=tuple(agent.name for agent in agents),
        code=source.code_of_others(),
    )
    environment.configure(settings)
    return environment


def _agents_of(config: GymConfig, resources: str) -> list[ServerEntry]:
    """The agents that play a resources server: they name it, or the environment server in front of them does."""
    fronted = {name for front in _fronts_of(config, resources, []) for name in fronted_agents(front.block)}
    agents = [server for server in config.servers if server.kind == AGENTS]
    return [agent for agent in agents if plays(agent, resources) or agent.name in fronted]


def _fronts_of(config: GymConfig, resources: str, agents: list[ServerEntry]) -> list[ServerEntry]:
    """The environment servers that name a resources server or one of the agents."""
    names = {agent.name for agent in agents}
    fronts = environment_servers(config.tree)
    return [front for front in fronts if plays(front, resources) or names & set(fronted_agents(front.block))]


def _settings_of(config: GymConfig, agent: ServerEntry, source: ServerSource) -> Tree:
    """The settings of an environment (`agent.KEY`) that make it be played by an agent of the configuration.

    One of ours, if we have it. Else the agent's own code, if it lies in the checkout.
    """
    kind = AGENT_TYPES.get(agent.implementation)
    if kind is not None:
        known = load_object(agent_types()[kind], None).Config.model_fields
        names = AGENT_SETTINGS.get(kind, {})
        block = {names.get(key, key): value for key, value in agent.block.items()}
        settings = {key: value for key, value in block.items() if key in known and value is not None}
    else:
        place = (source.root or source.folder.parent) / AGENTS / agent.implementation
        code = ServerSource.find(str(place))
        if code is None:
            kind, settings = _MISSING_AGENT, {"agent": agent.implementation, "place": str(place.parent)}
        else:
            kind, settings = "nemo_gym", _agent_settings(config, agent, code)
    return {"agent.type": kind, **{f"agent.{key}": value for key, value in settings.items()}}


def _agent_settings(config: GymConfig, agent: ServerEntry, source: ServerSource) -> Tree:
    block = {key: value for key, value in agent.block.items() if key != "datasets"}
    settings = {"source": source, "instance": agent.name, "block": block, "tree": _without(config.tree, agent.name)}
    front = turn_server(config.tree, agent)
    return {**settings, "environment_server": front} if front is not None else settings


def _datasets(servers: list[ServerEntry], source: ServerSource) -> list[Dataset]:
    """The datasets of a server and its agents: files that exist first, then `data/example.jsonl`."""
    datasets: dict[str, Dataset] = {}
    for server in servers:
        for entry in server.block.get("datasets") or ():
            if isinstance(entry, dict) and isinstance(path := entry.get("jsonl_fpath"), str):
                dataset = _dataset(entry, _file(path, source))
                datasets.setdefault(dataset.name, dataset)
    example = source.folder / "data" / "example.jsonl"
    if example.is_file() and all(dataset.path != example for dataset in datasets.values()):
        datasets.setdefault("example", _dataset({"name": "example"}, example))
    return sorted(datasets.values(), key=lambda dataset: bool(dataset.path and not dataset.path.is_file()))


def _dataset(entry: dict[str, Any], path: Path) -> Dataset:
    licence = str(entry.get("license") or "unknown")
    name = str(entry.get("name") or path.stem)
    rows: dict[str, Any] = {"path": path}
    if holds_tasks(path):
        rows = {"generate": FLAT_ROWS, "settings": {"path": str(path)}, "ends": True}
    return Dataset.model_validate({"name": name, **rows, "license": _LICENCES.get(licence, licence)})


def _file(name: str, source: ServerSource) -> Path:
    """A file of the checkout, of the server's folder, or of the working directory."""
    places = [source.root, source.folder, Path.cwd()]
    files = [place / name for place in places if place is not None]
    return next((file for file in files if file.is_file()), files[0])


def _without(tree: Tree, name: str) -> Tree:
    return {key: value for key, value in tree.items() if key != name}
