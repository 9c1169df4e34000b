"""Environments: a named wiring of resources, an agent and datasets, in one folder.

Loading has four steps: find the folder and read its `environment.yaml` (`folder.py`), import its classes, check their
settings, build the `Environment`. Only `session` creates resources, and only `share` opens their shared objects.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ludus.adapter import adapt
from ludus.agent import Agent, AgentConfig
from ludus.dataset import Dataset, Generated
from ludus.errors import DISTRIBUTION, MissingExtra, UserError, did_you_mean
from ludus.folder import FILE, WorkerNeeds, find_named, locate, read_file, with_argument
from ludus.game import Game
from ludus.limits import Limits
from ludus.prompt import PromptTemplate, load_prompt
from ludus.resources import Resources, ResourcesConfig
from ludus.runtime.boundary import attribute, reraise
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.imports import author_error, declared_class, load_object, place_of
from ludus.runtime.installed import entry_points
from ludus.runtime.settings import checked
from ludus.runtime.signatures import check_methods
from ludus.task import Task

#: Settings that most models have.
_MODEL_SETTINGS = {"temperature", "top_p", "max_output_tokens", "reasoning", "stream", "base_url", "extra_body"}
_PARTS = ("resources", "agent", "limits", "data", "worker")

#: The first words of the settings that `Environment.configure` takes.
SETTINGS = (*_PARTS, "pass_reward")


@dataclass
class Environment:
    """Everything a collection needs to know about one environment.

    environment = Environment.load("mcqa")
    environment.configure({"resources.grading_mode": "lenient_boxed"})
    """

    name: str
    resources: type[Resources]
    agent: Agent
    config: ResourcesConfig
    limits: Limits = field(default_factory=Limits)
    domain: str = "other"
    description: str = ""
    value: str = ""
    datasets: list[Dataset] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    pass_reward: float = 1.0
    reward_range: tuple[float, float] | None = None
    prompt: PromptTemplate | None = None
    worker: WorkerNeeds = field(default_factory=WorkerNeeds)
    #: other names of this environment in the `agent_ref` of rows
    agent_names: tuple[str, ...] = ()
    #: files, and folders with Python files, that belong to its verifier besides those of its own folder
    code: tuple[Path, ...] = ()
    chosen_limits: frozenset[str] = frozenset()  #: the names of limits that `configure` has set

    @classmethod
    def load(cls, which: str | Path | type[Resources] | Environment) -> Environment:
        """Load an environment by its name or folder, or `NAME:ARGUMENT` for one that takes an argument.

        A folder without an `environment.yaml` is shown to the adapters (`ludus.adapter`).
        A `Resources` class gets the `simple` agent, a `Game` class the `gymnasium` agent.
        """
        if isinstance(which, Environment):
            return which
        if isinstance(which, type):
            if not issubclass(which, Resources):
                raise UserError(f"{which.__name__} is not a subclass of Resources")
            config = _checked_class(which)
            agent = _agent({"type": "gymnasium" if issubclass(which, Game) else "simple"}, None)
            return cls(which.__name__, which, agent, checked(config, {}, "resources"))
        if isinstance(which, Resources):
            name = type(which).__name__
            raise UserError(f"{name}() is one session, and every rollout needs its own", f"Pass the class {name}")
        if not isinstance(which, (str, Path)):
            known = "a name, a folder, a subclass of Resources or an Environment"
            raise UserError(f"an environment is {known}, not {which!r:.80}")
        adapted: Environment | None = adapt(str(which))
        return adapted if adapted is not None else cls.from_folder(*locate(str(which)))

    @classmethod
    def named(cls, name: str) -> Environment:
        """Load the environment that a row names in `agent_ref`. A row can give a known name, never a path."""
        return cls.from_folder(*find_named(name))

    @classmethod
    def from_folder(cls, folder: Path, argument: str | None = None) -> Environment:
        """Load an environment from its folder. The argument, if any, becomes part of its name."""
        file = read_file(folder)
        if argument is not None:
            file = with_argument(file, argument)
        resources: type[Resources] = _load(file.resources, folder, f"{folder / FILE}: resources", Resources)
        config = _checked_class(resources)
        limits: Limits = checked(Limits, file.limits, f"{folder / FILE}: limits")
        return cls(
            name=file.name,
            resources=resources,
            agent=_agent(file.agent, folder),
            config=checked(config, file.settings, f"{folder / FILE}: settings"),
            limits=limits,
            worker=checked(WorkerNeeds, file.worker, f"{folder / FILE}: worker"),
            domain=file.domain,
            description=file.description,
            value=file.value,
            datasets=file.datasets,
            folder=folder,
            pass_reward=file.pass_reward,
            reward_range=file.reward_range,
            prompt=_prompt(file.prompt, folder),
            agent_names=tuple(file.agent_names),
        )

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Any]:
        """Open what the sessions of this environment share, once per process. An error becomes a `UserError`."""
        async with AsyncExitStack() as stack:
            try:
                shared = await stack.enter_async_context(self.resources.share(self.config))
            except UserError:
                raise
            except BaseException as error:
                failure = attribute(error, "open")
                kind = kind_of(failure.kind)
                message = f"environment {self.name} cannot open what its rollouts share: {failure.cause}"
                raise UserError(message, kind.hint if kind.stops_run else "") from error
            yield shared

    def session(self, shared: Any, seed: int = 0, *, seed_known: bool = True) -> Resources:
        """Create the resources of one rollout, not opened yet. `seed` becomes their `self.seed`.

        `seed_known` is false for a record that does not have the seed of its rollout.
        """
        try:
            session = self.resources(self.config, shared)
        except BaseException as error:
            reraise(error, "open")
        session.seed = seed
        if not seed_known:
            session.seed_known = False
        return session

    def copy(self) -> Environment:
        """A copy that can be configured without changing this environment."""
        return replace(self, agent=copy.copy(self.agent))

    def configure(self, settings: dict[str, Any]) -> None:
        """Apply settings such as `resources.KEY`, `agent.KEY` and `limits.KEY`, checked against their classes.

        `data.KEY` goes to the function that generates a dataset, and is checked when that function is called.
        `pass_reward` is the lowest reward that counts as a pass. `worker.KEY` is for Ray (`WorkerNeeds`).
        `agent.type` replaces the agent; other `agent.KEY` settings are then those of the new agent.
        """
        settings = dict(settings)
        if "pass_reward" in settings:
            self.pass_reward = _pass_reward(settings.pop("pass_reward"))
        parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
        for key, value in settings.items():
            part, _, name = key.partition(".")
            if not name and part in (*parts, "model"):
                raise UserError(f"setting {part} names no key", f"Write {part}.KEY=VALUE")
            if part == "model":
                raise UserError(f"unknown setting {key}: no model is called here", "Leave it out")
            if part not in parts:
                raise UserError(f"unknown setting {key}", self._meant(key) or did_you_mean(part, [*parts, "model"]))
            parts[part][name] = value
        self.data = {**self.data, **parts["data"]}
        self.config = checked(type(self.config), self.config.model_dump() | parts["resources"], "resources")
        self.limits = checked(Limits, self.limits.model_dump() | parts["limits"], "limits")
        self.chosen_limits |= parts["limits"].keys()
        self.worker = checked(WorkerNeeds, self.worker.model_dump() | parts["worker"], "worker")
        if "type" in parts["agent"] and "type" not in type(self.agent.config).model_fields:
            self.agent = _agent(parts["agent"], self.folder)
            return
        agent = self.agent
        agent.config = checked(type(agent.config), agent.config.model_dump() | parts["agent"], "agent")

    def _meant(self, key: str) -> str:
        """A hint for a setting without its part: the parts with a setting of this name."""
        models = {"resources": self.config, "agent": self.agent.config, "limits": self.limits, "worker": self.worker}
        meant = [f"{part}.{key}" for part, model in models.items() if key in type(model).model_fields]
        meant += [f"model.{key}"] if key in _MODEL_SETTINGS else []
        return f"Write {' or '.join(meant)}" if meant else ""

    def task(self, row: dict[str, Any]) -> Task:
        """Check a row. Raises pydantic's ValidationError, which names the field.

        Validators of the `Task` find the setting `compat` in their context.
        """
        return _row_checker(self.resources.Task)(row, context={"compat": self.config.compat})

    def limits_for(self, task: Any) -> Limits:
        """The deadlines of a rollout: raised to what its task needs, except those that a user has chosen."""
        limits, needed = self.limits, self.resources.seconds_needed(task)
        names = {name for name, seconds in needed.items() if seconds > getattr(limits, name)} - self.chosen_limits
        return Limits(**(limits.model_dump() | {name: needed[name] for name in names})) if names else limits

    def with_prompt(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the prompt that the environment's template builds, if the row has none."""
        return row if self.prompt is None else self.prompt.fill(row)

    def dataset(self, name: str | None = None) -> Path:
        """The file of a dataset. Without a name, of the first dataset."""
        rows = self.rows(name)
        if not isinstance(rows, Path):
            where = "generated" if isinstance(rows, Generated) else "on the hub"
            name = rows.name if isinstance(rows, Generated) else rows
            raise UserError(f"dataset {name} of environment {self.name} is {where}, not a file")
        return rows

    def rows(self, name: str | None = None) -> str | Path | Generated:
        """The file or the generator of a dataset, or its name on the hub. Without a name, of the first dataset."""
        for dataset in self.datasets:
            if name in (None, dataset.name):
                if dataset.path is not None and self.data:
                    hint = "Choose a generated dataset: --dataset NAME"
                    raise UserError(f"dataset {dataset.name} is a file and has no setting data.{min(self.data)}", hint)
                return self.file_of(dataset) or self._generated(dataset)
        if name is None:
            raise UserError(f"environment {self.name} has no dataset of its own", "Name rows with --input FILE")
        known = [dataset.name for dataset in self.datasets]
        raise UserError(f"environment {self.name} has no dataset {name}", did_you_mean(name, known))

    def file_of(self, dataset: Dataset) -> str | Path | None:
        """The file of a dataset, which must exist, or its name on the hub. None if the rows are generated."""
        if dataset.path is None or dataset.on_hub:
            return str(dataset.path) if dataset.on_hub else None
        file = (self.folder or Path()) / dataset.path
        if not file.exists():
            own = self.folder / FILE if self.folder else None
            place = self.name if own is None else own if own.is_file() else ""  # code of others has no such file
            correct = f" correct datasets.{dataset.name}.path in {place}," if place else ""
            hint = f"Create the file,{correct} or name other rows (collect --input FILE, data validate FILE)"
            raise UserError(f"environment {self.name}: there is no file {file} for dataset {dataset.name}", hint)
        return file

    def _generated(self, dataset: Dataset) -> Generated:
        where = f"{self.folder / FILE if self.folder else self.name}: datasets.{dataset.name}.generate"
        function = _load(dataset.generate or "", self.folder, where)
        try:
            takes = inspect.signature(function).parameters
        except (TypeError, ValueError) as error:
            raise UserError(f"{where}: {dataset.generate} is not a function", "Write def rows(seed)") from error
        config = {"config": self.config} if "config" in takes else {}  # rows may depend on the resources' settings
        return Generated(dataset.name, function, {**dataset.settings, **self.data, **config}, dataset.ends)


def _prompt(prompt: dict[str, Any] | str | None, folder: Path) -> PromptTemplate | None:
    try:
        return load_prompt(prompt, folder) if prompt is not None else None
    except UserError as error:
        raise UserError(f"{folder / FILE}: {error}") from error


def _pass_reward(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise UserError(f"pass_reward={value!r:.40}: a pass is a reward of at least this number", "Example: --pass 0.5")


@functools.cache
def agent_types() -> dict[str, str]:
    """The agents that `agent: {type: NAME}` can name, with their classes: ours, and those of other packages."""
    entries = entry_points("ludus.agents")
    ours = {entry.name: entry.value for entry in entries if entry.package == DISTRIBUTION}
    if not ours:
        raise UserError(f"the agents of {DISTRIBUTION} are not registered", "Install it again: pip install .")
    return {entry.name: entry.value for entry in entries} | ours


def _load(reference: str, folder: Path | None, where: str, base: type | None = None) -> Any:
    """Import the object that a key of `environment.yaml` names. `where` is that key, for error messages."""
    try:
        return load_object(reference, folder, base)
    except MissingExtra:
        raise
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


@functools.lru_cache(maxsize=256)
def _row_checker(kind: type[Task]) -> Callable[..., Task]:
    """`model_validate` if the author overrode it, else the faster validator behind it (benchmarks/large_input.py)."""
    overridden = kind.model_validate.__func__ is not BaseModel.model_validate.__func__  # type: ignore[attr-defined]
    return kind.model_validate if overridden else kind.__pydantic_validator__.validate_python


def _checked_class(resources: type[Resources]) -> type[ResourcesConfig]:
    """Check an author's class before any row is read: `Task`, `Config`, methods and tools. Returns its `Config`."""
    declared_class(resources, "Task", Task)
    config: type[ResourcesConfig] = declared_class(resources, "Config", ResourcesConfig)
    check_methods(resources, Resources, () if resources.by_group else ("verify",))
    if issubclass(resources, Game):
        check_methods(resources, Game, ("step",))
    for entry in resources.toolbox.values():
        try:
            entry.schema()
        except Exception as error:  # pydantic cannot read a type, or evaluating the annotation raised
            place, what = place_of(entry.function, resources), " ".join(str(error).split())
            hint = "Import it" if isinstance(error, NameError) else "Change its type"
            raise UserError(f"{place}: the tool {entry.name}: {what:.300}", hint) from error
    return config


def _agent(block: dict[str, Any], folder: Path | None) -> Agent:
    kind, settings = str(block.get("type", "simple")), {key: value for key, value in block.items() if key != "type"}
    part = f"{folder / FILE}: agent" if folder is not None else "agent"
    known = agent_types()
    reference = known.get(kind)
    if reference is None and ":" not in kind:
        raise UserError(f"{part}: unknown agent {kind}", did_you_mean(kind, known))
    agent: type[Agent] = _load(reference or kind, folder, part, Agent)
    check_methods(agent, Agent, ("act",))
    config = checked(declared_class(agent, "Config", AgentConfig, BaseModel), settings, part)
    try:
        inspect.signature(agent).bind(config)
    except TypeError as error:
        hint = "Write def __init__(self, config)"
        raise UserError(f"{place_of(agent)}: {agent.__name__} does not take its config: {error}", hint) from error
    try:
        player = agent(config)
        player.folder = folder
        return player
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise author_error(error, agent) from error
