"""NeMo Gym's configuration files, generated from Ludus's environments, models and agents if no such file is on disk.

`resources_servers/mcqa/configs/mcqa.yaml` is the environment mcqa, `responses_api_models/openai_model/configs/...` is
Ludus's model for OpenAI's API, and `responses_api_agents/simple_agent/configs/...` is Ludus's tool loop.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ludus.dataset import Dataset
from ludus.errors import UserError, did_you_mean
from ludus.folder import EnvironmentFile, read_file
from ludus_nemo_gym.models import MODEL_CONFIGS
from ludus_nemo_gym.names import (
    AGENT_TYPES,
    AGENTS,
    DATASET_TYPES,
    DOMAIN_OF,
    DOMAINS,
    LICENCE_OF,
    MODELS,
    RESOURCES,
)
from ludus_nemo_gym.search_paths import all_names, environment_folder, foreign_code, normal
from ludus_nemo_gym.trees import MISSING, Tree

_PATH = re.compile(
    rf"(?P<kind>{RESOURCES}|environments|{AGENTS}|{MODELS})/(?P<name>[\w-]+)/(configs/)?(?P<stem>[\w.-]+)"
)
RESOURCES_ONLY = "resources_only"

#: Extra settings of a configuration file that is not named after its environment.
VARIANTS: dict[tuple[str, str], Tree] = {
    ("math_with_judge", "math_stack_overflow"): {
        "should_use_judge": True,
        "judge_model_server": {"type": MODELS, "name": MISSING},
    },
}


def builtin_config(name: str) -> Tree | None:
    """The content for one of NeMo Gym's paths; None for any other path. Raises if Ludus has no such part."""
    match = _PATH.fullmatch(re.sub(r"\.ya?ml$", "", normal(name)))
    if match is None:
        return None
    part, stem = match["name"], match["stem"]
    if match["kind"] == MODELS:
        return _model(part, stem, name)
    if match["kind"] == AGENTS:
        return _agent(part, name)
    folder = environment_folder(part)
    if folder is None and (code := foreign_code(RESOURCES, part)) is not None:
        configs = sorted(path.stem for path in code.parent.glob("configs/*.yaml"))
        hint = f"Choose one: --resources-server {part}/NAME; the names are: {', '.join(configs) or 'none'}"
        raise UserError(f"{code.parent} has no configs/{stem}.yaml", hint)
    if folder is None:
        raise UserError(f"{name}: there is no environment {part}", did_you_mean(part, all_names()))
    return environment_config(part, stem, folder)


def environment_config(name: str, stem: str, folder: Path) -> Tree:
    """An environment as a resources server and its agents."""
    file = read_file(folder)
    block = {
        "entrypoint": "app.py",
        "domain": DOMAIN_OF.get(file.domain, file.domain if file.domain in DOMAINS else "other"),
        "description": file.description,
        "value": file.value,
        **file.settings,
        **VARIANTS.get((name, stem), {}),
    }
    tree: Tree = {name: {RESOURCES: {name: block}}}
    if stem == RESOURCES_ONLY:
        return tree
    first, *others = agent_names(name, stem, file)
    tree[first] = _agent_of(
        file, name, [_dataset(dataset, name) for dataset in file.datasets if dataset.path is not None]
    )
    return tree | {agent: _agent_of(file, name, []) for agent in others}


def agent_names(name: str, stem: str, file: EnvironmentFile) -> list[str]:
    """Every name that rows may use for an environment's agent. The first is the main one."""
    main = f"{name}_simple_agent"
    stems = [] if stem in ("config", RESOURCES_ONLY) else [f"{stem}_simple_agent"]
    games = [f"{name}_gymnasium_agent"] if file.agent.get("type") == "gymnasium" else []
    return list(dict.fromkeys([main, *stems, *games, *file.agent_names]))


def _agent_of(file: EnvironmentFile, name: str, datasets: list[Tree]) -> Tree:
    kind = str(file.agent.get("type", "simple"))
    implementation = next((ours for ours, agent in AGENT_TYPES.items() if agent == kind), kind)
    settings = {key: value for key, value in file.agent.items() if key != "type"}
    return {AGENTS: {implementation: _agent_block(name) | settings | ({"datasets": datasets} if datasets else {})}}


def _agent_block(resources: str) -> Tree:
    return {
        "entrypoint": "app.py",
        "resources_server": {"type": RESOURCES, "name": resources},
        "model_server": {"type": MODELS, "name": "policy_model"},
    }


def _dataset(dataset: Dataset, name: str) -> Tree:
    kind = dataset.name if dataset.name in DATASET_TYPES else "example"
    licence = LICENCE_OF.get(dataset.licence, dataset.licence)
    path = str(dataset.path) if dataset.on_hub else f"{RESOURCES}/{name}/{dataset.path}"
    return {"name": dataset.name, "type": kind, "jsonl_fpath": path, "num_repeats": 1, "license": licence}


def _model(implementation: str, stem: str, path: str) -> Tree:
    known: dict[str, Any] = MODEL_CONFIGS
    if implementation not in known:
        raise UserError(f"{path}: there is no model server {implementation}", did_you_mean(implementation, known))
    block = {"entrypoint": "app.py", **known[implementation]}
    if stem == "vllm_model_for_training":
        block["return_token_id_information"] = True
    return {"policy_model": {MODELS: {implementation: block}}}


def _agent(implementation: str, path: str) -> Tree:
    if implementation not in AGENT_TYPES:
        raise UserError(f"{path}: there is no agent {implementation}", did_you_mean(implementation, AGENT_TYPES))
    return {implementation: {AGENTS: {implementation: _agent_block(MISSING)}}}
