"""The identity of a run: the environments, their verifiers, dataset, model and seed that a resumed run must share.

`run.json` is written before the first rollout. `--resume` refuses a run whose identity differs. Repeats and concurrency
are not part of the identity, so a resumed run may add repeats. Changed or added rows change the dataset's digest. An
edited verifier changes the identity too: its rewards do not belong beside those of the old one. `run.json` lists the
verifiers that a resumed run replaced under `earlier_verifiers`.
"""

from __future__ import annotations

import json
import platform
import re
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

#: What an environment's identity says about its verifier.
_VERIFIER = ("resources", "settings", "verifier")


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


def resumed(path: Path, described: dict[str, Any], *, keep: bool = True) -> dict[str, Any]:
    """The content of `run.json` for a resumed run. `described` is that of a new run (`describe`). With `keep`, what
    describes the start of the run stays. The verifiers that the run had before are listed in either case."""
    recorded = read_json_object(path)
    known, current = recorded.get("identity"), described["identity"]
    earlier = recorded.get("earlier_verifiers")
    history = list(earlier) if isinstance(earlier, list) else []
    if isinstance(known, dict) and (changed := _changed_verifiers(_split(known)[1], _split(_as_json(current))[1])):
        history.append({"until": described["started"], "environments": changed})
    kept = {**recorded, "identity": current, "options": described["options"]} if keep else described
    return {**kept, "earlier_verifiers": history} if history else kept


def check_identity(files: Files, current: dict[str, Any], *, accept_new_verifier: bool = False) -> None:
    """Refuse to resume a run whose identity differs. The error lists the first differences."""
    path, recorded = files.run, files.described().get("identity")
    if not path.exists():
        raise UserError(f"{path} is missing: the identity of this run is unknown", "Add --force to resume anyway")
    if not isinstance(recorded, dict):
        raise UserError(f"{path} holds no run identity", "Add --force to resume anyway")
    (of_then, verifiers_then), (of_now, verifiers_now) = _split(recorded), _split(_as_json(current))
    if differing := differences(of_then, of_now):
        cause = f"{path} describes a different run: {_listed(differing)}"
        raise UserError(cause, "Choose another --output, or add --force")
    changed = _changed_verifiers(verifiers_then, verifiers_now)
    if changed and not accept_new_verifier:
        differing = differences(changed, {name: verifiers_now[name] for name in changed})
        cause = f"the verifier has changed since {path} was written: {_listed(differing)}"
        raise UserError(cause, "Choose another --output, or add --accept-new-verifier to keep the earlier rewards")


def _listed(differing: list[tuple[str, Any, Any]]) -> str:
    return "; ".join(f"{key} was {old!r:.60}, now {new!r:.60}" for key, old, new in differing[:3])


def _as_json(identity: dict[str, Any]) -> dict[str, Any]:
    """An identity as it is read back from its file."""
    content: dict[str, Any] = json.loads(indented_json(identity))
    return content


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


def _split(identity: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An identity without its verifiers, and the verifiers by environment: class, settings, digests of the source."""
    named = identity.get("environments")
    items = named.items() if isinstance(named, dict) else ()
    environments = {name: described for name, described in items if isinstance(described, dict)}
    verifiers = {
        name: {part: described[part] for part in _VERIFIER if part in described}
        for name, described in environments.items()
    }
    others = {
        name: {part: value for part, value in described.items() if part not in _VERIFIER}
        for name, described in environments.items()
    }
    return {**identity, "environments": others}, verifiers


def _changed_verifiers(recorded: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """The verifiers of an environment that both have, as they were. A run that does not name its files has any."""
    changed = {}
    for name in recorded.keys() & current.keys():
        known = {part: value for part, value in current[name].items() if part in recorded[name]}
        if recorded[name] != known:
            changed[name] = recorded[name]
    return changed


def _environment_identity(environment: Environment) -> dict[str, Any]:
    from ludus.store.receipts import verifier_files

    agent, verifier = environment.agent, verifier_files(environment)
    prompt = {"prompt": environment.prompt.model_dump()} if environment.prompt is not None else {}
    return {
        **prompt,
        "resources": f"{environment.resources.__qualname__}",
        "settings": redacted_settings(environment.config),
        "agent": type(agent).__qualname__,
        "agent_settings": redacted_settings(agent.config),
        "limits": environment.limits.model_dump(),
        **({"verifier": verifier} if verifier is not None else {}),
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
    command = ["git", "status", "--porcelain=v2", "--branch"]
    try:
        status = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    commit = re.search(r"^# branch\.oid ([0-9a-f]+)$", status.stdout, re.MULTILINE)
    return commit and {"commit": commit[1], "changed": bool(re.search(r"^[^#]", status.stdout, re.MULTILINE))}
