"""Datasets: the rows of an environment come from a file, or from a function that generates them.

Generated rows are reproducible: the same seed and settings give the same rows in the same order. So a collection can
be resumed, and a task keeps its id.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ludus.errors import UserError, did_you_mean
from ludus.runtime.boundary import is_interrupt
from ludus.runtime.imports import author_error, place_of


class Dataset(BaseModel):
    """One entry of `datasets` in `environment.yaml`: a `path`, or a function to `generate` with its `settings`.

    A path may also be `hf:OWNER/NAME[@REVISION][:SPLIT]`, a dataset on the Hugging Face hub.
    """

    model_config = ConfigDict(extra="forbid")

    #: what `--dataset` calls it
    name: str
    path: Path | None = None
    generate: str | None = None
    settings: dict[str, Any] = {}
    #: whether the function's rows end by themselves, so that all of them can be played
    ends: bool = False
    #: the licence of the rows
    licence: str = Field(alias="license", default="unknown")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.path is None) == (self.generate is None):
            raise ValueError("a dataset needs a `path` or a function to `generate` it, and not both")
        return self

    @property
    def on_hub(self) -> bool:
        """Whether the rows are on the Hugging Face hub and not in a file."""
        return str(self.path).startswith("hf:")


def count_rows(path: Path) -> int | None:
    """The number of rows in a file; None if the file cannot be read."""
    try:
        with path.open("rb") as lines:
            return sum(not line.isspace() for line in lines)
    except OSError:
        return None


@dataclass(frozen=True)
class Generated:
    """Rows that a function `stream(seed, **settings)` yields. They may never end, unless `ends` is set."""

    name: str
    function: Callable[..., Iterator[dict[str, Any]]]
    settings: dict[str, Any] = field(default_factory=dict)
    ends: bool = False

    def for_other_machines(self) -> Generated:
        """The same rows, without what the function checks on this machine if it is given the optional `config`."""
        config = inspect.signature(self.function).parameters.get("config")
        if config is None or config.default is inspect.Parameter.empty:
            return self
        return replace(self, settings={name: value for name, value in self.settings.items() if name != "config"})

    def rows(self, seed: int) -> Iterator[dict[str, Any]]:
        """Yield the rows, from the first on. A setting `seed` overrides the seed of the run."""
        arguments = {"seed": seed, **self.settings}
        self._check(arguments)
        try:
            returned = self.function(**arguments)
            try:
                rows = iter(returned)
            except TypeError:
                raise self._error(f"the function returns {returned!r:.80} and no rows", "Yield the rows") from None
            yield from rows
        except UserError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raised = author_error(error, self.function)
            raise type(raised)(f"dataset {self.name}: {raised}") from error

    def _check(self, arguments: dict[str, Any]) -> None:
        """Check the arguments against the function's signature."""
        signature = inspect.signature(self.function)
        known = signature.parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            for key in self.settings:
                if key not in known:
                    raise UserError(f"dataset {self.name} has no setting data.{key}", did_you_mean(key, known))
        try:
            signature.bind(**arguments)
        except TypeError as error:
            name = getattr(self.function, "__name__", "generate")
            raise self._error(f"{name}() {error}", "Write def stream(seed, **settings)") from error
        if inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise self._error("the function is async, and rows are read without await", "Write def, not async def")

    def _error(self, message: str, hint: str) -> UserError:
        return UserError(f"dataset {self.name}: {place_of(self.function)}: {message}", hint)
