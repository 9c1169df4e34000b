"""The environment of each row, loaded once and configured with the collection's settings.

A collection with one environment plays every row in it. Otherwise each row names its environment in `agent_ref`: one of
the collection's list, or any known one. A setting `ENV.PART.KEY` is for one environment and wins over `PART.KEY`, which
is for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ludus.data.mixing import check_mix
from ludus.data.row_checks import BadField
from ludus.data.rows import Fill, MixedRows, Rows
from ludus.environment import SETTINGS, Environment
from ludus.errors import UserError, did_you_mean
from ludus.folder import has_agent_name
from ludus.prompt import PromptTemplate
from ludus.resources import Resources
from ludus.task import Task

EnvironmentSpec = str | Path | type[Resources] | Environment


class RowEnvironments:
    """Finds the environment of a row: the only one, else the one that the row names in `agent_ref`.

    Rows may name the environments of a list, and all known ones.
    """

    def __init__(
        self,
        environments: EnvironmentSpec | Sequence[EnvironmentSpec] | None,
        settings: dict[str, Any],
        *,
        resources: str | None = None,
        agent: str | None = None,
        prompt: PromptTemplate | None = None,
    ) -> None:
        self._settings, self._own_settings = _by_environment(settings)
        self._resources, self._agent, self._prompt = resources, agent, prompt
        self._loaded: dict[str, Environment] = {}  # by the name in the rows
        self._local: dict[str, Environment] = {}  # by name, without their servers
        self._mixes = environments is None or isinstance(environments, (list, tuple))
        self._named: list[Environment] = []
        self._only: Environment | None = None
        if isinstance(environments, (list, tuple)):
            self._named = [self._configured(environment) for environment in _with_own_names(environments)]
        elif environments is not None:
            self._only = self._configured(Environment.load(cast("EnvironmentSpec", environments)))
        if len(self._named) > 1 and (resources is not None or agent is not None):
            raise UserError(f"a server has one environment, and {len(self._named)} are named", "Name one environment")

    def all(self) -> list[Environment]:
        """The environments of the rows read so far."""
        if self._only is not None:
            return [self._only]
        return list({id(environment): environment for environment in self._loaded.values()}.values())

    def all_local(self) -> list[Environment]:
        """The same environments without the server, for a process that connects to it itself."""
        return [self._local[environment.name] for environment in self.all()]

    def rows(self, dataset: str | None, limit: int | None, seed: int, mix: Mapping[str, float] | None = None) -> Rows:
        """The rows of the only environment's dataset, or of a dataset of each environment.

        `mix` are weights of several environments; without them their rows come in turns.
        """
        if self._only is not None:
            if mix is not None:
                check_mix(mix, [self._only.name])
            return Rows(self._only.rows(dataset), self.task, limit, seed, self.fill)
        if not self._named:
            raise UserError("no environment and no rows are named", "Name an environment, or --input FILE")
        own_limit = limit if mix is None else None
        parts = [
            (environment.name, Rows(environment.rows(dataset), self.task, own_limit, seed))
            for environment in self._named
        ]
        return MixedRows(parts, self.task, mix, limit if mix is not None else None, self.fill)

    @property
    def named(self) -> list[Environment]:
        """The environments of the list."""
        return self._named

    def find_named(self, name: str) -> Environment | None:
        """The environment of the list with this name in a row's `agent_ref`."""
        for environment in self._named:
            if has_agent_name(name, environment.name, environment.agent_names):
                return environment
        return None

    def check_settings(self, environments: Iterable[Environment] | None = None) -> None:
        """Refuse settings for environments other than these; the default are those of the rows read so far."""
        used = [environment.name for environment in (self.all() if environments is None else environments)]
        for name, settings in self._own_settings.items():
            if name not in used:
                key = f"{name}.{next(iter(settings))}"
                raise UserError(f"--set {key}: no environment {name} in this run", did_you_mean(name, used))

    def task(self, row: dict[str, Any]) -> Task:
        """The checked task of a row."""
        if self._only is not None:
            return self._only.task(row)
        try:
            environment = self.of_row(row)
        except UserError as error:
            raise BadField("agent_ref", str(error)) from error
        return environment.task(row)

    @property
    def fill(self) -> Fill | None:
        """Adds the prompt to a row that has none, by its environment's template. None if there is no template."""
        return None if self._only is not None and self._only.prompt is None else self._with_prompt

    def _with_prompt(self, row: dict[str, Any]) -> dict[str, Any]:
        return self.of_row(row).with_prompt(row)

    def of_row(self, row: dict[str, Any]) -> Environment:
        """The environment of a row."""
        if self._only is not None:
            return self._only
        reference = row.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        if not isinstance(name, str):
            name = self._name_of_the_only_one()
        if name not in self._loaded:
            self._loaded[name] = self._find(name)
        return self._loaded[name]

    def _name_of_the_only_one(self) -> str:
        if len(self._named) == 1:
            return self._named[0].name
        hint = 'Name an environment for all rows, or add agent_ref: {"name": ENV}'
        if self._named:
            hint = f'Add agent_ref: {{"name": "{self._named[0].name}"}}'
        raise UserError("agent_ref: the row names no environment", hint)

    def _find(self, name: str) -> Environment:
        if (environment := self.find_named(name)) is not None:
            return environment
        try:
            environment = Environment.named(name)
        except UserError:
            hint = did_you_mean(name, [environment.name for environment in self._named])
            if not hint.startswith("Did you mean"):
                raise
            raise UserError(f"unknown environment {name:.80}", hint) from None
        loaded = (other for other in self._loaded.values() if other.name == environment.name)
        return next(loaded, None) or self._configured(environment)

    def _configured(self, environment: Environment) -> Environment:
        environment = environment.copy()  # the caller's object keeps its own settings
        environment.prompt = self._prompt or environment.prompt
        try:
            environment.configure({**self._settings, **self._own_settings.get(environment.name, {})})
        except UserError as error:
            if not self._mixes:
                raise
            raise UserError(f"{environment.name}: {error}") from error
        self._local[environment.name] = environment
        if self._resources is None and self._agent is None:
            return environment
        from ludus.remote.wiring import on_servers  # imported here: loading HTTP takes a third of a second

        return on_servers(environment, resources=self._resources, agent=self._agent)


def _with_own_names(specs: Iterable[EnvironmentSpec]) -> list[Environment]:
    """The environments. Their names must differ, because rows and settings use them."""
    by_name: dict[str, Environment] = {}
    for environment in map(Environment.load, specs):
        if (other := by_name.setdefault(environment.name, environment)) is not environment:
            if other.folder is not None and other.folder == environment.folder:
                raise UserError(f"environment {environment.name} is named twice", "Name it once")
            where = f"{other.folder or other.name} and {environment.folder or environment.name}"
            raise UserError(f"two environments are called {environment.name}: {where}", "Rename one of them")
    return list(by_name.values())


def _by_environment(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The settings of all environments, and those of each: `ENV.PART.KEY` without its first word."""
    for_all: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        name, _, rest = key.partition(".")
        if name not in (*SETTINGS, "model") and rest.partition(".")[0] in SETTINGS:
            own.setdefault(name, {})[rest] = value
        else:
            for_all[key] = value
    return for_all, own
