"""The identity of a run: the environments, dataset, model and seed that a resumed collection must share.

`run.json` is written before the first rollout. `--resume` refuses a run whose identity differs. Repeats and concurrency
are not part of the identity, so a resumed run may add repeats. Changed or added rows change the dataset's digest.
"""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ludus.errors import DISTRIBUTION, UserError
from ludus.runtime.encoding import encode
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.redaction import redacted_settings
from ludus.store.drafts import write_whole

if TYPE_CHECKING:
    from ludus.environment import Environment
    from ludus.model import Model


class Files:
    """The paths of a collection's files: in a folder, or beside an output file `X.jsonl`. `turns` exists only while
    rollouts are unfinished, `control` only after a request."""

    def __init__(self, output: str | Path) -> None:
        path = Path(output)
        if path.suffix == ".jsonl":
            self.rollouts = path
            names = ("failures.jsonl", "run.json", "metrics.json", "turns.jsonl", "control.json")
            self.failures, self.run, self.metrics, self.turns, self.control = (
                path.with_name(f"{path.stem}.{name}") for name in names
            )
        else:
            self.rollouts, self.failures = path / "rollouts.jsonl", path / "failures.jsonl"
            self.run, self.metrics, self.turns = path / "run.json", path / "metrics.json", path / "turns.jsonl"
            self.control = path / "control.json"

    def check_input(self, path: Path) -> None:
        """Refuse an input that is one of the output files."""
        for output in (self.rollouts, self.failures, self.run, self.metrics, self.turns):
            with contextlib.suppress(OSError):  # the output file does not exist yet
                if output.samefile(path):
                    raise UserError(f"{path} is the input and would be overwritten", "Choose another --output")

    def nonempty_journal(self) -> Path | None:
        """The first journal that is not empty. Does not open the journals, because opening repairs them."""
        for path in (self.rollouts, self.failures, self.turns):
            with contextlib.suppress(OSError):
                if path.stat().st_size:
                    return path
        return None

    def nothing_collected(self) -> bool:
        """Whether there are only failures of a run that could not start, such as a refused key or a missing judge.

        Such a failure holds no answer of a model, so a run with corrected settings may replace it.
        """
        try:
            if self.rollouts.stat().st_size or not self.run.exists():
                return False
            if self.turns.exists() and self.turns.stat().st_size:
                return False
            with self.failures.open("rb") as lines:
                return all(kind_of(orjson.loads(line).get("kind")).stops_run for line in lines)
        except (OSError, AttributeError, orjson.JSONDecodeError):
            return False


def identity(
    environments: list[Environment], model: Model, dataset: dict[str, Any], seed: int, shard: str | None = None
) -> dict[str, Any]:
    """The inputs that determine a rollout's content, and the shard, if the collection is split."""
    found: dict[str, Any] = {
        "environments": {environment.name: _environment_identity(environment) for environment in environments},
        "dataset": dataset,
        "model": {"name": model.name, "settings": model.settings()},
        "seed": seed,
    }
    return found if shard is None else {**found, "shard": shard}


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
    return {**json.loads(path.read_bytes()), "options": options}


class RecordedScale(NamedTuple):
    """How an environment scores, as run.json records it: the lowest reward of a pass, and the range of rewards."""

    name: str
    pass_reward: float
    reward_range: tuple[float, float] | None


def recorded_scales(path: Path) -> list[RecordedScale]:
    """How the environments of a run score; empty if there is no `run.json` that says so."""
    try:
        options = json.loads(path.read_bytes())["options"]
        least, ranges = options["pass_reward"].items(), options.get("reward_range", {})
        return [RecordedScale(name, float(reward), _range(ranges.get(name))) for name, reward in least]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _range(given: Any) -> tuple[float, float] | None:
    return (float(given[0]), float(given[1])) if isinstance(given, list) and len(given) == 2 else None


def environments_of_run(rollouts: Path) -> list[str]:
    """The names of the environments in the `run.json` beside a file of rollouts; empty if there is none."""
    files = Files(rollouts.parent if rollouts.name == Files("").rollouts.name else rollouts)
    try:
        return list(json.loads(files.run.read_bytes())["identity"]["environments"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def check_identity(path: Path, current: dict[str, Any]) -> None:
    """Refuse to resume a run whose identity differs. The error lists the first differences."""
    try:
        recorded = json.loads(path.read_bytes())["identity"]
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing: the identity of this run is unknown", "Add --force to resume anyway"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no run identity", "Add --force to resume anyway") from error
    if differing := differences(recorded, json.loads(indented_json(current))):
        listed = "; ".join(f"{key} was {old!r:.60}, now {new!r:.60}" for key, old, new in differing[:3])
        raise UserError(f"{path} describes a different run: {listed}", "Choose another --output, or add --force")


def check_shard(files: Files, current: str | None) -> None:
    """Refuse to continue another shard, even if it is empty: a shard without tasks is a result, too."""
    try:
        recorded = json.loads(files.run.read_bytes())["identity"].get("shard")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if recorded != current and (recorded is not None or files.nonempty_journal() is not None):
        held = f"shard {recorded}" if recorded is not None else "all"
        asked = f"shard {current}" if current is not None else "all of it"
        cause = f"{files.run.parent} holds {held} of a collection, not {asked}"
        raise UserError(cause, "Give every shard an --output of its own")


def is_same_run(path: Path, current: dict[str, Any]) -> bool:
    """Whether a run with the identity `current` may resume the run that `path` describes."""
    try:
        check_identity(path, current)
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
        return [each for key in keys for each in differences(old.get(key), new.get(key), f"{path}.{key}".strip("."))]
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
