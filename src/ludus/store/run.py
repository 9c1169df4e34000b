"""The identity of a run: the environments, dataset, model and seed that a resumed collection must share.

`run.json` is written before the first rollout. `--resume` refuses a run whose identity differs. Repeats and concurrency
are not part of the identity, so a resumed run may add repeats. Changed or added rows change the dataset's digest.
"""

from __future__ import annotations

import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ludus.errors import DISTRIBUTION, UserError
from ludus.runtime.encoding import encode
from ludus.runtime.redaction import redacted_settings
from ludus.store.drafts import write_whole
from ludus.store.files import Files, read_json_object

if TYPE_CHECKING:
    from ludus.environment import Environment
    from ludus.model import Model


def identity(
    environments: list[Environment], model: Model, dataset: dict[str, Any], seed: int, shard: str | None = None
) -> dict[str, Any]:
    """The inputs that determine a rollout's content, and the shard, if the collection is split."""
    inputs: dict[str, Any] = {
        "environments": {environment.name: _environment_identity(environment) for environment in environments},
        "dataset": dataset,
        "model": {"name": model.name, "settings": model.settings()},
        "seed": seed,
    }
    return inputs if shard is None else {**inputs, "shard": shard}


def describe(identity: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The content of `run.json`: identity, options, start time, versions and git commit."""
    return {
        "identity": identity,
        "options": options,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "ludus": _version(DISTRIBUTION),
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "git": _revision(),
    }


def with_options(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The content of an existing `run.json` with the options of the resumed run."""
    return {**read_json_object(path), "options": options}


def check_identity(files: Files, current: dict[str, Any]) -> None:
    """Refuse to resume a run whose identity differs. The error lists the first differences."""
    path, recorded = files.run, files.described().get("identity")
    if not path.exists():
        raise UserError(f"{path} is missing: the identity of this run is unknown", "Add --force to resume anyway")
    if not isinstance(recorded, dict):
        raise UserError(f"{path} holds no run identity", "Add --force to resume anyway")
    if differing := differences(recorded, json.loads(indented_json(current))):
        listed = "; ".join(f"{key} was {old!r:.60}, now {new!r:.60}" for key, old, new in differing[:3])
        raise UserError(f"{path} describes a different run: {listed}", "Choose another --output, or add --force")


def check_shard(files: Files, current: str | None) -> None:
    """Refuse to continue another shard, even if it is empty: a shard without tasks is a result, too."""
    identity = files.described().get("identity")
    if not isinstance(identity, dict):
        return
    recorded = identity.get("shard")
    if recorded != current and (recorded is not None or files.nonempty_journal() is not None):
        held = f"shard {recorded}" if recorded is not None else "all"
        asked = f"shard {current}" if current is not None else "all of it"
        cause = f"{files.run.parent} holds {held} of a collection, not {asked}"
        raise UserError(cause, "Give every shard an --output of its own")


def is_same_run(files: Files, current: dict[str, Any]) -> bool:
    """Whether a run with the identity `current` may resume the run of these files."""
    try:
        check_identity(files, current)
    except UserError:
        return False
    return True


def write_run(path: Path, description: dict[str, Any]) -> None:
    """Write `run.json`, indented."""
    write_whole(path, indented_json(description) + b"\n")


def indented_json(value: dict[str, Any]) -> bytes:
    """Indented JSON. Text that is not UTF-8 and integers over 64 bits, which orjson refuses, are allowed."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2)
    except TypeError:
        return json.dumps(json.loads(encode(value)), ensure_ascii=False, indent=2).encode()


def _environment_identity(environment: Environment) -> dict[str, Any]:
    agent = environment.agent
    prompt = {"prompt": environment.prompt.model_dump()} if environment.prompt is not None else {}
    return {
        **prompt,
        "resources": f"{environment.resources.__qualname__}",
        "settings": redacted_settings(environment.config),
        "agent": type(agent).__qualname__,
        "agent_settings": redacted_settings(agent.config),
        "limits": environment.limits.model_dump(),
    }


def differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """What differs between two JSON values: the path of each difference, such as `dataset.rows`, and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{path}.{key}".strip("."))]
    return [] if old == new else [(path, old, new)]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> dict[str, Any] | None:
    """The git commit of the current folder, and whether files were changed since; None outside a repository."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
        changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (
        {"commit": commit.stdout.strip(), "changed": bool(changed.stdout.strip())} if commit.returncode == 0 else None
    )
