"""`ng_prepare_data`: checks the datasets of agents, writes their metrics, and collates their rows for training.

Bad rows are reported with file and line. Nothing is written until every row is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ludus.data.row_checks import BadField
from ludus.errors import UserError, did_you_mean, missing_package
from ludus.store.drafts import write_whole
from ludus.store.run import indented_json
from ludus.task import Task
from ludus_nemo_gym import hub
from ludus_nemo_gym.config import GymConfig
from ludus_nemo_gym.names import AGENTS, DATASET_TYPES
from ludus_nemo_gym.search_paths import find_data, find_file
from ludus_nemo_gym.servers import environment_servers, fronted_agents
from ludus_nemo_gym.trees import Tree

try:
    from ludus_data.prepare import MANIFEST, Preparation, SplitSource

    from ludus_nemo_gym.data_metrics import DataMetrics
except ModuleNotFoundError as error:
    raise missing_package("what prepares datasets", "data") from error

Row = dict[str, Any]
MODES = {"train_preparation": ("train", "validation", "benchmark"), "example_validation": ("example",)}

#: The fields of a Responses API request. NeMo Gym's model servers refuse a request with any other field.
PARAMS = set(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls "
    "metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key "
    "prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text "
    "tool_choice tools top_logprobs top_p truncation user".split()
)


@dataclass
class DatasetFile:
    """One dataset of one agent: its configuration block and its file. Nothing is written beside a built-in file."""

    agent: str
    block: Tree
    path: Path
    built_in: bool = False
    metrics: DataMetrics = field(default_factory=DataMetrics)

    @property
    def kind(self) -> str:
        """The dataset's type: train, validation, example or benchmark."""
        return str(self.block["type"])

    @property
    def repeats(self) -> int:
        """How often each row is written."""
        return int(self.block.get("num_repeats") or 1)


def prepare_data(
    config: GymConfig,
    mode: str,
    output: Path,
    *,
    download: bool = False,
    overwrite: bool = False,
    only: str | None = None,
) -> list[tuple[Path, int]]:
    """Check and collate the datasets of a configuration's agents. Returns the new files with their numbers of rows.

    `only` is the one type of datasets to use. Without it, all types of the mode are used.
    """
    if mode not in MODES:
        raise UserError(f"unknown mode {mode}", did_you_mean(mode, MODES))
    datasets = _datasets(config, MODES[mode] if only is None else (only,), download)
    kinds: dict[str, DataMetrics] = {data.kind: DataMetrics() for data in datasets}
    preparation = Preparation.check([_source(data, kinds[data.kind]) for data in datasets])
    _write_metrics(datasets, kinds, output, overwrite)
    preparation.write(output, seed=None)
    write_whole(output / MANIFEST, indented_json(preparation.manifest()) + b"\n")
    return [(file.path, file.rows) for file in preparation.files]


def _datasets(config: GymConfig, kinds: tuple[str, ...], download: bool) -> list[DatasetFile]:
    """The datasets of these kinds. The error lists every missing file."""
    files: list[DatasetFile] = []
    missing: list[str] = []
    for agent, block in _entries(config):
        _check(agent, block)
        if block["type"] not in kinds:
            continue
        name = str(block["jsonl_fpath"])
        path, why = find_data(name), ""
        if path is None and download:
            path, why = _download(block, Path(name), config.tree.get("hf_token"))
        if path is None:
            missing.append(f"{name} ({block['name']} of {agent}{why})")
        else:
            files.append(DatasetFile(agent, block, path, find_file(name) is None))
    if missing:
        raise UserError(f"there is no {', '.join(missing)}", "Create the files, or fix jsonl_fpath")
    if not files:
        scope = " or ".join(kinds)
        hint = "Name a config with datasets in +config_paths, or add datasets to the agent's config"
        raise UserError(f"no agent of the configuration has a dataset of type {scope}", hint)
    return files


def _entries(config: GymConfig) -> Iterator[tuple[str, Any]]:
    """Each dataset with its agent. One of an environment server names which of several agents plays it."""
    for server in config.servers:
        if server.kind == AGENTS:
            yield from ((server.name, block) for block in server.block.get("datasets") or [])
    for server in environment_servers(config.tree):
        agents = fronted_agents(server.block)
        for block in server.block.get("datasets") or []:
            named = block.get("agent") if isinstance(block, dict) else None
            if named is None and len(agents) != 1:
                hint = f"Add agent: NAME to the dataset; the agents are: {', '.join(agents) or 'none'}"
                raise UserError(f"{server.name}: a dataset does not say which agent plays it", hint)
            yield str(named or agents[0]), block


def _check(agent: str, block: Any) -> None:
    """Raise if an entry of `datasets` lacks a field or has a wrong one."""
    where = f"{agent}: datasets"
    if not isinstance(block, dict):
        raise UserError(f"{where}: an entry must be a mapping", "Write {name: ..., type: ..., jsonl_fpath: ...}")
    for key in ("name", "type", "jsonl_fpath"):
        if not isinstance(block.get(key), str):
            raise UserError(
                f"{where}: an entry has no {key}", f"Each entry needs name, type and jsonl_fpath: {block!s:.80}"
            )
    if block["type"] not in DATASET_TYPES:
        raise UserError(
            f"{where}: {block['name']}: unknown type {block['type']}", did_you_mean(block["type"], DATASET_TYPES)
        )
    if block["type"] in ("train", "validation") and not block.get("license"):
        raise UserError(f"{where}: {block['name']} has no license", "Add one: license: Apache 2.0")
    repeats = block.get("num_repeats", 1)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise UserError(f"{where}: {block['name']}: num_repeats {repeats!r:.40} is not a number from 1 on")


def _download(block: Tree, target: Path, token: Any) -> tuple[Path | None, str]:
    """Download a dataset's file from its Hugging Face repository, or return why it cannot be downloaded."""
    source = block.get("source") or block.get("huggingface_identifier") or {}
    repository, artifact = source.get("repo_id"), source.get("artifact_fpath")
    if not repository or not artifact:
        return None, "; it has no repo_id and artifact_fpath to download from"
    if not hub.is_installed():
        return None, f"; not downloaded, because {hub.PACKAGE} is not installed"
    hub.download(repository, artifact, target, token)
    return target, ""


def _source(data: DatasetFile, metrics: DataMetrics) -> SplitSource:
    """A dataset as `ludus data prepare` takes it. Its metrics, and those of its kind, see every row."""

    def look(row: Row) -> None:
        for _ in range(data.repeats):
            data.metrics.add(row)
            metrics.add(row)

    copy = None if data.built_in else data.path.with_name(f"{data.path.stem}_prepare.jsonl")
    licence = str(data.block.get("license") or "unknown")
    return SplitSource(data.agent, data.kind, data.path, _task, data.repeats, licence, look, copy)


def _task(row: Row) -> Task:
    """The task of a row, as NeMo Gym checks it."""
    task = Task.model_validate(row)
    if unknown := sorted(task.responses_create_params.keys() - PARAMS):
        raise BadField("responses_create_params", f"responses_create_params has no field {unknown[0]}")
    return task


def _write_metrics(datasets: list[DatasetFile], kinds: dict[str, DataMetrics], output: Path, overwrite: bool) -> None:
    conflicts = []
    for data in datasets:
        if not data.built_in:
            path = data.path.with_name(f"{data.path.stem}_metrics.json")
            conflicts += _write(path, {**data.block, **data.metrics.summary()}, overwrite)
    for kind, metrics in kinds.items():
        conflicts += _write(output / f"{kind}_metrics.json", {"type": kind, **metrics.summary()}, overwrite)
    if conflicts:
        hint = "Compare with the *_conflict.json beside each file, or add +overwrite_metrics_conflicts=true"
        raise UserError(f"the metrics of the data differ from {', '.join(conflicts)}", hint)


def _write(path: Path, content: Tree, overwrite: bool) -> list[str]:
    """Write metrics. If the file holds different ones, write a `_conflict.json` instead and return the file's name."""
    new = orjson.dumps(content, option=orjson.OPT_INDENT_2, default=str) + b"\n"
    try:
        old = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        old = None
    if old is None or overwrite or old == orjson.loads(new):
        write_whole(path, new)
        return []
    write_whole(path.with_name(f"{path.stem}_conflict.json"), new)
    return [str(path)]
