"""The identity of a run: what must be the same for two sittings to belong to one collection.

`run.json` is written before the first rollout. A resume compares it and refuses to mix rollouts of two different
runs. How many repeats or rollouts at once is not part of the identity: a run may be extended with more repeats. Other
rows, and more of the same, are another dataset.
"""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from ludus.environment import Environment
from ludus.errors import DISTRIBUTION, UserError
from ludus.model import Model
from ludus.runtime.encoding import encode
from ludus.runtime.redaction import redacted_settings
from ludus.store.journal import write_whole


class Files:
    """The four files of a collection: in a folder, or beside an `X.jsonl`."""

    def __init__(self, output: str | Path) -> None:
        path = Path(output)
        if path.suffix == ".jsonl":
            self.rollouts = path
            self.failures, self.run, self.metrics = (
                path.with_name(f"{path.stem}.{name}") for name in ("failures.jsonl", "run.json", "metrics.json")
            )
        else:
            self.rollouts, self.failures = path / "rollouts.jsonl", path / "failures.jsonl"
            self.run, self.metrics = path / "run.json", path / "metrics.json"

    def check_input(self, path: Path) -> None:
        """Refuse to write over what is to be read."""
        for ours in (self.rollouts, self.failures, self.run, self.metrics):
            with contextlib.suppress(OSError):  # one that is not there is not the same
                if ours.samefile(path):
                    raise UserError(f"{path} is the input and would be written over", "Choose another --output")

    def in_use(self) -> Path | None:
        """The journal that holds something already, if one does. Nothing is opened to find out."""
        for path in (self.rollouts, self.failures):
            with contextlib.suppress(OSError):
                if path.stat().st_size:
                    return path
        return None


def identity(environments: list[Environment], model: Model, dataset: dict[str, Any], seed: int) -> dict[str, Any]:
    """What a rollout's content depends on, as far as we decide it."""
    return {
        "environments": {environment.name: _wiring(environment) for environment in environments},
        "dataset": dataset,
        "model": {"name": model.name, "settings": model.settings()},
        "seed": seed,
    }


def describe(identity: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The whole of `run.json`: the identity, and the circumstances worth knowing later."""
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


def continued(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """What `run.json` says of a run that goes on with other options: all else is as it was."""
    return {**json.loads(path.read_bytes()), "options": options}


def check_same(path: Path, ours: dict[str, Any]) -> None:
    """Refuse to continue a run whose identity differs, and say in what."""
    try:
        theirs = json.loads(path.read_bytes())["identity"]
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing, so it is unknown what was run here", "Add --force to resume anyway"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read", "Add --force to resume anyway") from error
    if differing := _differences(theirs, json.loads(readable(ours)), ""):
        what = "; ".join(differing[:3])
        raise UserError(f"{path} describes a different run: {what}", "Choose another --output, or add --force")


def write_run(path: Path, description: dict[str, Any]) -> None:
    """Write `run.json` for a person to read."""
    write_whole(path, readable(description) + b"\n")


def readable(value: dict[str, Any]) -> bytes:
    """JSON with indents, also of a name that is not UTF-8 and of a number that is too long for 64 bits."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2)
    except TypeError:
        return json.dumps(json.loads(encode(value)), ensure_ascii=False, indent=2).encode()


def _wiring(environment: Environment) -> dict[str, Any]:
    agent = environment.agent
    return {
        "resources": f"{environment.resources.__qualname__}",
        "settings": redacted_settings(environment.config),
        "agent": type(agent).__qualname__,
        "agent_settings": redacted_settings(agent.config),
        "limits": environment.limits.model_dump(),
    }


def _differences(theirs: Any, ours: Any, path: str) -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = sorted(theirs.keys() | ours.keys())
        return [
            line for key in keys for line in _differences(theirs.get(key), ours.get(key), f"{path}.{key}".strip("."))
        ]
    return [] if theirs == ours else [f"{path} was {theirs!r:.60}, now {ours!r:.60}"]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> dict[str, Any] | None:
    """The commit of the folder we run in, and whether it was changed; None outside a repository."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
        changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (
        {"commit": commit.stdout.strip(), "changed": bool(changed.stdout.strip())} if commit.returncode == 0 else None
    )
