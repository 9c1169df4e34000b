"""Datasets: where the rows of an environment come from, which is a file, or a function that makes them up.

A generated dataset is as good as a file: the same seed and settings give the same rows in the same order, so a
collection can be resumed, and a task keeps its id.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ludus.errors import UserError, did_you_mean
from ludus.runtime.boundary import is_interrupt
from ludus.runtime.imports import author_error, place_of


class Dataset(BaseModel):
    """One entry of `datasets` in `environment.yaml`: a `path`, or a function to `generate` with its `settings`."""

    model_config = ConfigDict(extra="forbid")

    name: str
    path: Path | None = None
    generate: str | None = None
    settings: dict[str, Any] = {}
    licence: str = Field(alias="license", default="unknown")

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Self:
        if (self.path is None) == (self.generate is None):
            raise ValueError("a dataset has either a path or a function to generate it")
        return self


@dataclass(frozen=True)
class Generated:
    """Rows that a function yields, without end as far as anyone knows: `stream(seed, **settings)`."""

    name: str
    function: Callable[..., Iterator[dict[str, Any]]]
    settings: dict[str, Any] = field(default_factory=dict)

    def rows(self, seed: int) -> Iterator[dict[str, Any]]:
        """Begin anew. A setting `seed` takes the place of the run's."""
        given = {"seed": seed, **self.settings}
        self._check(given)
        try:
            made = self.function(**given)
            try:
                rows = iter(made)
            except TypeError:
                raise self._wrong(f"it returns {made!r:.80}, and no rows", "Let it yield them") from None
            yield from rows
        except UserError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise UserError(f"dataset {self.name}: {author_error(error, self.function)}") from error

    def _check(self, given: dict[str, Any]) -> None:
        """Find out what can be known to go wrong before the function is called."""
        signature = inspect.signature(self.function)
        known = signature.parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            for key in self.settings:
                if key not in known:
                    raise UserError(f"dataset {self.name} has no setting data.{key}", did_you_mean(key, known))
        try:
            signature.bind(**given)
        except TypeError as error:
            name = getattr(self.function, "__name__", "it")
            raise self._wrong(f"{name}() {error}", "It must be stream(seed, **settings)") from error
        if inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise self._wrong("it is async, and rows are read without waiting", "Write def in place of async def")

    def _wrong(self, what: str, hint: str) -> UserError:
        return UserError(f"dataset {self.name}: {place_of(self.function)}: {what}", hint)
