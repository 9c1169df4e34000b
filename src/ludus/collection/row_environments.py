"""Which environment a row belongs to, loaded once and configured as the collection says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.dataset import Generated
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.resources import Resources
from ludus.task import Task

Which = str | Path | type[Resources] | Environment


class RowEnvironments:
    """Which environment a row is for: the one that was named, or the one that the row names itself."""

    def __init__(
        self, named: Which | None, settings: dict[str, Any], *, resources: str | None = None, agent: str | None = None
    ) -> None:
        self._settings, self._resources, self._agent = settings, resources, agent
        self._loaded: dict[str, Environment] = {}
        self._named = self._prepared(Environment.load(named)) if named is not None else None

    def all(self) -> list[Environment]:
        """The environments of the rows that were read so far."""
        return [self._named] if self._named is not None else list(self._loaded.values())

    def rows(self, dataset: str | None) -> Path | Generated:
        """Where the rows of the named environment come from."""
        if self._named is None:
            raise UserError("neither an environment nor rows were named", "Name an environment, or --input FILE")
        return self._named.rows(dataset)

    def task(self, row: dict[str, Any]) -> Task:
        """The checked task of a row."""
        return self.of_row(row).task(row)

    def of_row(self, row: dict[str, Any]) -> Environment:
        """The environment of a row."""
        if self._named is not None:
            return self._named
        reference = row.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        if not isinstance(name, str):
            raise UserError("agent_ref: the row names no environment", "Name one: ludus collect ENV --input FILE")
        if name not in self._loaded:
            self._loaded[name] = self._prepared(Environment.named(name))
        return self._loaded[name]

    def _prepared(self, environment: Environment) -> Environment:
        environment = environment.copy()  # one that was passed as an object is not ours to configure
        environment.configure(self._settings)
        if self._resources is None and self._agent is None:
            return environment
        from ludus.remote.wiring import on_servers  # imported where used: HTTP costs a third of a second

        return on_servers(environment, resources=self._resources, agent=self._agent)
