"""`gym list` and `gym search`: what a configuration can name, in Ludus and in your own folders."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.folder import folders, read_file
from ludus_nemo_gym.entry_points import print_columns
from ludus_nemo_gym.hosted.source import ServerSource
from ludus_nemo_gym.models import MODEL_CONFIGS, STARTS_VLLM
from ludus_nemo_gym.names import AGENT_TYPES, AGENTS, DOMAIN_OF, RESOURCES
from ludus_nemo_gym.search_paths import environment_folder, environment_names, own_code, roots
from ludus_nemo_gym.servers import find_servers
from ludus_nemo_gym.trees import read_yaml

Entry = dict[str, Any]
KINDS = ("benchmarks", "environments", "agents", "models", "resources-servers")
FILTERS = ("domain", "kind", "status")


def entries(kind: str) -> list[Entry]:
    """Everything of one kind. Each entry has a name and a description."""
    if kind == "benchmarks":
        configs = {path.parent.name: path for root in roots() for path in sorted(root.glob("benchmarks/*/config.yaml"))}
        return [{"name": name, "description": str(path), "status": "yours"} for name, path in sorted(configs.items())]
    if kind == "agents":
        ours = [{"name": name, "description": f"Ludus's agent {agent}"} for name, agent in AGENT_TYPES.items()]
        folders_by_name = own_code(AGENTS).items()
        return ours + [
            {"name": name, "description": f"code in {folder}", "status": "yours"}
            for name, folder in folders_by_name
            if name not in AGENT_TYPES
        ]
    if kind == "models":
        return [{"name": name, "description": _settings(name)} for name in MODEL_CONFIGS if name not in STARTS_VLLM]
    names, code = environment_names(), own_code(RESOURCES)
    own = [_own_code(name, folder) for name, folder in code.items() if name not in names]
    return sorted([*map(_environment, names), *own], key=lambda entry: str(entry["name"]))


def show(kind: str, name: str | None, query: str | None, filters: dict[str, str], as_json: bool) -> int:
    """Print the entries of a kind: one by its name, those that match a query, or all that pass the filters."""
    listed = [entry for entry in entries(kind) if all(entry.get(key) == value for key, value in filters.items())]
    if name is not None:
        listed = [entry for entry in listed if entry["name"] == name]
        if not listed:
            raise UserError(
                f"there is no {name} among {kind}", did_you_mean(name, [entry["name"] for entry in entries(kind)])
            )
    if query is not None:
        listed = [entry for entry in listed if _matches(entry, query)]
    if as_json:
        from ludus.cli.screen import safe_json

        print(safe_json(listed[0] if name is not None else listed))
    elif not listed:
        print(f"no {kind}")
    elif name is not None:
        print_columns([(key, _line(value)) for key, value in listed[0].items()])
    else:
        print_columns(
            [(_line(entry["name"]), _line(entry.get("domain", "")), _line(entry["description"])) for entry in listed]
        )
    return 0


def _environment(name: str) -> Entry:
    folder = environment_folder(name)
    if folder is None:
        return {"name": name, "description": ""}
    status = "installed" if folders().get(name) == folder else "yours"
    try:
        file = read_file(folder)
    except UserError as error:
        return {"name": name, "description": str(error), "status": "broken", "path": str(folder)}
    return {
        "name": name,
        "domain": DOMAIN_OF.get(file.domain, file.domain),
        "kind": str(file.agent.get("type", "simple")),
        "status": status,
        "description": file.description,
        "agents": [f"{name}_simple_agent", *file.agent_names],
        "config": f"resources_servers/{name}/configs/{name}.yaml",
        "datasets": [
            f"resources_servers/{name}/{dataset.path}" for dataset in file.datasets if dataset.path is not None
        ],
        "path": str(Path(folder)),
    }


def _own_code(name: str, folder: Path) -> Entry:
    """A resources server whose code is an `app.py`, by the configuration file that is named after it."""
    source = ServerSource.find(str(folder))
    config = next(iter(source.configs), None) if source is not None else None
    entry: Entry = {"name": name, "status": "yours", "description": "", "path": str(folder)}
    if config is None:
        return {**entry, "description": "it has no configs/*.yaml"}
    try:
        servers, _ = find_servers(read_yaml(config))
    except UserError as error:
        return {**entry, "description": str(error), "status": "broken"}
    own = next((server for server in servers if (server.kind, server.implementation) == (RESOURCES, name)), None)
    agents = [server for server in servers if server.kind == AGENTS]
    block = own.block if own is not None else {}
    datasets = [data for server in agents for data in server.block.get("datasets") or () if isinstance(data, dict)]
    return {
        "name": name,
        "domain": str(block.get("domain") or ""),
        "kind": next((AGENT_TYPES.get(agent.implementation, agent.implementation) for agent in agents), ""),
        "status": "yours",
        "description": str(block.get("description") or ""),
        "agents": [agent.name for agent in agents],
        "config": f"{RESOURCES}/{name}/configs/{config.name}",
        "datasets": [str(data.get("jsonl_fpath")) for data in datasets],
        "path": str(folder),
    }


def _settings(name: str) -> str:
    settings = ", ".join(MODEL_CONFIGS[name])
    return f"settings: {settings}" if settings else "needs no settings"


def _matches(entry: Entry, query: str) -> bool:
    """Whether a query is in an entry, or nearly is its name."""
    text = " ".join(str(value) for value in entry.values()).lower()
    wanted = query.lower()
    return wanted in text or bool(difflib.get_close_matches(wanted, [str(entry["name"]).lower()], n=1, cutoff=0.7))


def _line(value: Any) -> str:
    from ludus.cli.screen import one_line

    return one_line(", ".join(map(str, value)) if isinstance(value, list) else str(value))
