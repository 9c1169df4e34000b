"""The environment of each row, loaded once and configured with the collection's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.dataset import Generated
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.resources import Resources
from ludus.task import Task

EnvironmentSpec = str | Path | type[Resources] | Environment


class RowEnvironments:
    """Finds the environment of a row: the given one, else the one that the row names in `agent_ref`."""

    def __init__(
        self,
        given: EnvironmentSpec | None,
        settings: dict[str, Any],
        *,
        resources: str | None = None,
        agent: str | None = None,
    ) -> None:
        self._settings, self._resources, self._agent = settings, resources, agent
        self._loaded: dict[str, Environment] = {}
        self._given = self._configured(Environment.load(given)) if given is not None else None

    def all(self) -> list[Environment]:
        """The environments of the rows read so far."""
        return [self._given] if self._given is not None else list(self._loaded.values())

    def rows(self, dataset: str | None) -> Path | Generated:
        """The source of the rows of the given environment's dataset."""
        if self._given is None:
            raise UserError("no environment and no rows given", "Name an environment, or --input FILE")
        return self._given.rows(dataset)

    def task(self, row: dict[str, Any]) -> Task:
        """The checked task of a row."""
        return self.of_row(row).task(row)

    def of_row(self, row: dict[str, Any]) -> Environment:
        """The environment of a row."""
        if self._given is not None:
            return self._given
        reference = row.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        if not isinstance(name, str):
            raise UserError("agent_ref: the row names no environment", "Name one: ludus collect ENV --input FILE")
        if name not in self._loaded:
            self._loaded[name] = self._configured(Environment.named(name))
        return self._loaded[name]

    def _configured(self, environment: Environment) -> Environment:
        environment = environment.copy()  # the caller's object keeps its own settings
        environment.configure(self._settings)
        if self._resources is None and self._agent is None:
            return environment
        from ludus.remote.wiring import on_servers  # imported here: loading HTTP takes a third of a second

        return on_servers(environment, resources=self._resources, agent=self._agent)
