"""The folder of an environment: where it is, and what its `environment.yaml` says.

Built-in environments have names, packages register theirs through the entry point group `ludus.environments`, and your
own folder works by path. An environment for a family of games takes an argument after a colon:
`gymnasium:Blackjack-v1`.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from ludus.dataset import Dataset
from ludus.errors import UserError, cannot_read, did_you_mean
from ludus.runtime.imports import BUILT_IN
from ludus.runtime.installed import EntryPoint, entry_points, named_entry_points
from ludus.runtime.settings import read_yaml
from ludus.runtime.wording import describe_errors

FILE = "environment.yaml"

#: Suffixes of the agents' names in public datasets.
_AGENT_SUFFIXES = ("", "_simple_agent", "_gymnasium_agent", "_agent")
_HINT = "If you want this environment, name it on the command line"


_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_MEMORY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?([KMG]i?)?B?")


class WorkerNeeds(BaseModel):
    """What one worker of an environment takes on a Ray cluster, and how many sessions it holds at once.

    `resources` are Ray's custom resources, `packages` what pip installs on the nodes.
    """

    model_config = ConfigDict(extra="forbid")

    #: CPU cores of one worker
    cpus: float = Field(default=1.0, ge=0, le=1_000_000)
    #: GPUs of one worker
    gpus: float = Field(default=0.0, ge=0, le=1_000_000)
    #: memory of one worker: a number of bytes, or as in `2GiB`
    memory: str | int = 0
    resources: dict[str, Annotated[float, Field(gt=0, le=1_000_000)]] = {}
    #: the most sessions that one worker holds at once
    sessions: int | None = Field(default=None, ge=1, le=1_000_000)
    packages: list[str] = []

    @field_validator("memory")
    @classmethod
    def _readable(cls, memory: str | int) -> str | int:
        if _memory_bytes(memory) is None:
            raise PydanticCustomError("memory", "write a number of bytes, or as in 2GiB")
        return memory

    @property
    def memory_bytes(self) -> int | None:
        """The memory in bytes; None if none is declared."""
        return _memory_bytes(self.memory) or None

    @classmethod
    def of_all(cls, needs: Iterable[WorkerNeeds]) -> WorkerNeeds:
        """The needs of a worker that plays several environments: the maximum of each need, the minimum of sessions."""
        all_needs = list(needs)
        if not all_needs:
            return cls()
        resources: dict[str, float] = {}
        for worker in all_needs:
            for name, amount in worker.resources.items():
                resources[name] = max(amount, resources.get(name, 0))
        return cls(
            cpus=max(worker.cpus for worker in all_needs),
            gpus=max(worker.gpus for worker in all_needs),
            memory=max(worker.memory_bytes or 0 for worker in all_needs),
            resources=resources,
            sessions=min((worker.sessions for worker in all_needs if worker.sessions is not None), default=None),
            packages=sorted({package for worker in all_needs for package in worker.packages}),
        )

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} CPU"]
        if self.gpus:
            parts.append(f"{self.gpus:g} GPU")
        if self.memory_bytes:
            parts.append(f"{self.memory_bytes / (1 << 30):.3g} GiB of memory")
        return ", ".join([*parts, *(f"{amount:g} {name}" for name, amount in self.resources.items())])


def _memory_bytes(memory: str | int) -> int | None:
    if isinstance(memory, int):
        return memory if memory >= 0 else None
    match = _MEMORY.fullmatch(memory)
    return int(float(match[1]) * _UNITS[match[2] or ""]) if match is not None else None


class EnvironmentFile(BaseModel):
    """What `environment.yaml` holds.

    `argument` names the setting that `NAME:ARGUMENT` sets. You may type any argument. A row may name only arguments
    that match the pattern `row_argument`, because a row must not choose what code we run. `agent_names` are other names
    of this environment in the `agent_ref` of published datasets. `pass_reward` is the lowest reward that counts as a
    pass. `reward_range` holds the lowest and the highest reward, for confidence intervals; 0 and 1 by default. `prompt`
    builds the prompt of rows that have none: `{system, user}`, or a YAML file with these keys. `worker` says what a
    worker on a Ray cluster needs (`WorkerNeeds`).
    """

    model_config = ConfigDict(extra="forbid")

    #: what commands, rows and records call the environment
    name: str
    #: where the class of the resources is: `resources.py:Class`, or `package.module:Class`
    resources: str
    #: what `ludus envs` groups environments by
    domain: str = "other"
    #: one sentence: what it is
    description: str = ""
    #: one sentence: what a model learns from it
    value: str = ""
    #: settings of the resources
    settings: dict[str, Any] = {}
    argument: str | None = None
    row_argument: str | None = None
    #: the `type` of the agent, and its settings
    agent: dict[str, Any] = {"type": "simple"}
    agent_names: list[str] = []
    #: deadlines in seconds, see `Limits`
    limits: dict[str, Any] = {}
    worker: dict[str, Any] = {}
    #: modules and programs of others that it needs, and the command that installs each
    needs: dict[str, str] = {}
    pass_reward: FiniteFloat = 1.0
    reward_range: tuple[FiniteFloat, FiniteFloat] | None = None
    prompt: dict[str, Any] | str | None = None
    #: where rows come from; the first is the default
    datasets: list[Dataset] = []

    @field_validator("reward_range")
    @classmethod
    def _lowest_first(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None and bounds[0] >= bounds[1]:
            raise PydanticCustomError("reward_range", "the lowest reward must come first, as in [-1, 1]")
        return bounds


def read_file(folder: Path) -> EnvironmentFile:
    """Read and check an `environment.yaml`."""
    path = folder / FILE
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold a mapping", "See docs/environments.md")
    try:
        return EnvironmentFile.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        # A misspelled key gives two errors, missing and unknown: report the unknown one.
        first = next((problem for problem in errors if problem["type"] == "extra_forbidden"), errors[0])
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            fields = (EnvironmentFile if len(first["loc"]) == 1 else Dataset).model_fields
            known = [field.alias or name for name, field in fields.items()]
            raise UserError(f"{path} has no key {where}", did_you_mean(str(first["loc"][-1]), known)) from error
        raise UserError(f"{path}: {describe_errors(where, [first], first['input'])}") from error


def locate(which: str) -> tuple[Path, str | None]:
    """The folder of an environment, and the argument after its name or path, if there is one."""
    name, colon, argument = which.partition(":")
    if not colon or _is_environment_folder(which) or Path(which).name == FILE:
        return find(which), None
    return find(name), argument


def find(which: str) -> Path:
    """The folder of an environment, by path, by built-in name or by registered name."""
    path = _path(which)
    if path.name == FILE:
        path = path.parent
    try:
        if (path / FILE).is_file():
            return path.resolve()
    except OSError as error:
        raise cannot_read(f"{which:.80}", error) from error
    known = folders()
    if which in known:
        return known[which]
    if "/" in which or path.is_dir():
        if not path.exists():
            raise no_such_path(which)
        raise UserError(f"{which} has no {FILE}", "Make one with: ludus new NAME")
    beside = _folder_beside(which)
    raise _unknown(which, known, f"Did you mean the folder {beside}?" if beside else "")


def no_such_path(which: str) -> UserError:
    """The error for a path that does not exist, with the path that was probably meant."""
    path = _path(which)
    try:
        beside = [other.name for other in path.parent.iterdir()]
    except (OSError, ValueError):
        beside = []
    similar = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.7)
    hint = f"Did you mean {path.with_name(similar[0])}?" if similar else "Make one with: ludus new NAME"
    return UserError(f"{which:.200} does not exist", hint)


def _unknown(name: str, known: Iterable[str], hint: str) -> UserError:
    return UserError(f"unknown environment {name:.80}", hint or f"{did_you_mean(name, known)} List all: ludus envs")


def folders() -> dict[str, Path]:
    """The folder of every environment that can be found by name."""
    return dict(_folders(tuple(entry_points("ludus.environments")), tuple(sys.path)))


@lru_cache(maxsize=4)
def _folders(entries: tuple[EntryPoint, ...], search_path: tuple[str, ...]) -> dict[str, Path]:
    by_name = {path.parent.name: path.parent for path in sorted(BUILT_IN.glob(f"*/{FILE}"))}
    for entry in entries:
        try:
            spec = importlib.util.find_spec(entry.value)
        except Exception:  # a package that cannot be imported must not hide the others
            continue
        if spec is not None and spec.submodule_search_locations:
            by_name.setdefault(entry.name, Path(next(iter(spec.submodule_search_locations))))
    return by_name


def has_agent_name(agent: str, name: str, agent_names: Iterable[str]) -> bool:
    """Whether `agent`, the name in a row's `agent_ref`, means the environment `name` with these `agent_names`."""
    return agent in agent_names or any(agent == f"{name}{end}" for end in _AGENT_SUFFIXES)


def find_named(name: str) -> tuple[Path, str | None]:
    """The folder and the argument of the environment that a row names in `agent_ref`; never a path."""
    base, colon, argument = name.partition(":")
    known = folders()
    folder = next(
        (known[environment] for end in _AGENT_SUFFIXES if (environment := base.removesuffix(end)) in known), None
    )
    folder = folder or next((path for path in known.values() if base in read_file(path).agent_names), None)
    if folder is None and re.fullmatch(r"[\w-]+", base) is None:
        raise UserError(f"{name!r:.80} is not the name of an environment", _HINT)
    if folder is None:
        beside = _folder_beside(base)
        hint = f"For the folder {beside} write: --env {beside}" if beside else ""
        raise _unknown(base, known, hint)
    allowed = read_file(folder).row_argument if colon else None
    if colon and (allowed is None or re.fullmatch(allowed, argument) is None):
        raise UserError(f"a row may not name {name!r:.80}", _HINT)
    return folder, argument if colon else None


def environment_name(agent: str) -> str | None:
    """The name of the environment that a row names in `agent_ref`; None if no known environment has that name."""
    try:
        folder, argument = find_named(agent)
    except UserError:
        return None
    name = read_file(folder).name
    return name if argument is None else f"{name}:{argument}"


def option_for(name: str) -> str:
    """The value of `--env` for the environment that a row names: a known name, or a folder nearby."""
    base = name.partition(":")[0]
    if re.fullmatch(r"[\w-]{1,80}", base) is None:
        return "FOLDER"
    if environment_name(name):
        return name
    if base != name and environment_name(base):  # a row may not name code, so the hint does not repeat its argument
        return f"{base}:ARGUMENT"
    if base in named_entry_points("ludus.adapters"):
        return f"{base}:ARGUMENT"
    return _folder_beside(base) or f"FOLDER_OF_{base}"


def _folder_beside(name: str) -> str | None:
    """An environment's folder with this or a similar name in the working directory, beside it, or one level below."""
    try:
        if Path.cwd().name == name and Path(FILE).is_file():
            return "."
        below = {path.parent.name: f"./{path.parent}" for path in sorted(Path().glob(f"*/{FILE}"))}
        deeper = (f"./{path.parent}" for path in sorted(Path().glob(f"*/*/{FILE}")) if path.parent.name == name)
        sibling = Path("..", name)
        exact = below.get(name) or (str(sibling) if (sibling / FILE).is_file() else None) or next(deeper, None)
    except (OSError, ValueError):  # a name that cannot be part of a path
        return None
    similar = difflib.get_close_matches(name, below, n=1, cutoff=0.7)
    return exact or (below[similar[0]] if similar else None)


def _path(which: str) -> Path:
    try:
        return Path(which).expanduser()
    except RuntimeError as error:
        raise UserError(f"cannot read {which:.80}: there is no such user", "Write the whole path") from error


def _is_environment_folder(which: str) -> bool:
    """Whether a text that contains a colon is the path of an environment's folder."""
    try:
        return (_path(which) / FILE).is_file()
    except OSError:  # the argument cannot be part of a path
        return False


def with_argument(file: EnvironmentFile, argument: str) -> EnvironmentFile:
    """The file with an argument applied: the argument becomes part of the name, and a setting."""
    if file.argument is None:
        raise UserError(f"environment {file.name} takes no argument, and got {argument!r:.80}", f"Write {file.name}")
    if not argument:
        raise UserError(f"{file.name}: has no argument after the colon", f"Write {file.name}:{file.argument.upper()}")
    settings = {**file.settings, file.argument: argument}
    return file.model_copy(update={"name": f"{file.name}:{argument}", "settings": settings})
