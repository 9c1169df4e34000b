"""The options of a collection: what `ludus.collect` takes, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from ludus.collection.stragglers import StragglerLimits
from ludus.data.shards import Shard
from ludus.errors import UserError, did_you_mean
from ludus.model import Model
from ludus.prompt import PromptTemplate


@dataclass
class Options:
    """The options of a collection: the keyword arguments of `collect` and `stream`."""

    model: str | Model = "local"
    input: str | Path | Iterable[dict[str, Any]] | None = None
    dataset: str | None = None
    output: str | Path | None = None
    repeats: int = 1
    concurrency: int | Literal["auto"] | None = None
    workers: int | None = None  # processes that share `concurrency`; 1, the default, is this process
    ray: str | None = None  # the address of a Ray cluster, or "local": workers are its actors
    ray_env: str | Path | dict[str, Any] | None = None  # a Ray runtime environment for the actors
    limit: int | None = None
    resume: bool = False
    overwrite: bool = False
    force: bool = False
    seed: int = 0
    max_attempts: int = 3
    tokens: bool = False
    checkpoint: bool | None = None  # save each turn, so that `resume` goes on after it; None: where that is possible
    enough: int | None = None  # end the rollouts of a task when so many of its repeats have ended without a failure
    group_deadline: float | None = None  # end them this many seconds after the first one began
    max_staleness: int | None = None  # end a rollout whose first call is more policy versions behind than this
    chaos: str | None = None  # faults to inject, such as "seed=7,model_500=5%,tool_hang=1%"
    settings: dict[str, Any] | None = None
    resources: str | None = None  # the URL of a resources server to use instead of resources in this process
    agent: str | None = None  # the URL of an agent server that plays the rollouts with its own model and resources
    branch: str | Path | None = None  # a file of recorded rollouts to continue, `repeats` times each
    turn: int | None = None  # where to cut them: after this many model calls; -1 is before the last call
    prompt: str | Path | dict[str, Any] | PromptTemplate | None = None  # builds the prompt of rows without one
    shard: str | None = None  # such as "2/8": play the tasks of the second of eight shards
    mix: dict[str, float] | None = None  # the weights of several environments, by name
    otel: bool = False  # send OpenTelemetry spans, set by the OTEL_* variables
    metrics_port: int | str | None = None  # serve metrics for Prometheus on this port, or on HOST:PORT
    log_to: str | Sequence[str] | None = None  # write charts: "wandb", "mlflow" or "tensorboard", with ":ARGUMENT"

    def __post_init__(self) -> None:
        """Refuse invalid values and combinations."""
        for name in ("repeats", "concurrency", "workers", "limit", "max_attempts", "seed"):
            value = getattr(self, name)
            if value is None and name in ("concurrency", "limit", "workers"):
                continue
            if name == "concurrency" and value == "auto":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                other = ' or "auto"' if name == "concurrency" else ""
                raise UserError(f"{name} must be a whole number{other}, not {value!r:.60}")
            if value < 1 and name != "seed":
                raise UserError(f"{name} must be at least 1, not {value}")
        self._check_stragglers()
        if self.shard is not None:
            self.shard = str(Shard.parse(self.shard))
        if self.ray_env is not None and self.ray is None:
            raise UserError("--ray-env is for the nodes of a Ray cluster", "Add --ray ADDRESS, or leave it out")
        if self.resume and self.output is None:
            raise UserError("--resume needs the folder of the collection to resume", "Add --output DIR")
        if self.resume and self.overwrite:
            raise UserError("--resume continues a collection and --overwrite deletes it", "Leave one of them out")

    def _check_stragglers(self) -> None:
        for name, least in (("enough", 1), ("max_staleness", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise UserError(f"{name} must be a whole number of at least {least}, not {value!r:.60}")
        if self.enough is not None and self.enough > self.repeats:
            raise UserError(f"--enough {self.enough} is more than --repeats {self.repeats}", "Raise --repeats")
        if self.group_deadline is not None and not 0 < self.group_deadline < float("inf"):
            raise UserError(f"group_deadline must be a positive number of seconds, not {self.group_deadline!r:.60}")

    @property
    def stragglers(self) -> StragglerLimits:
        """Which rollouts are not waited for."""
        return StragglerLimits(self.enough, self.group_deadline, self.max_staleness)


class CollectArguments(TypedDict, total=False):
    """The fields of `Options` as keyword arguments, for editors and type checkers."""

    model: str | Model
    input: str | Path | Iterable[dict[str, Any]] | None
    dataset: str | None
    output: str | Path | None
    repeats: int
    concurrency: int | Literal["auto"] | None
    workers: int | None
    ray: str | None
    ray_env: str | Path | dict[str, Any] | None
    limit: int | None
    resume: bool
    overwrite: bool
    force: bool
    seed: int
    max_attempts: int
    tokens: bool
    checkpoint: bool | None
    enough: int | None
    group_deadline: float | None
    max_staleness: int | None
    chaos: str | None
    settings: dict[str, Any] | None
    resources: str | None
    agent: str | None
    branch: str | Path | None
    turn: int | None
    prompt: str | Path | dict[str, Any] | PromptTemplate | None
    shard: str | None
    mix: dict[str, float] | None
    otel: bool
    metrics_port: int | str | None
    log_to: str | Sequence[str] | None


def collect_options(given: CollectArguments) -> Options:
    """The options of a call. An unknown one is refused with a suggestion."""
    known = [each.name for each in fields(Options)]
    for name in given:
        if name not in known:
            raise UserError(f"a collection has no option `{name}`", did_you_mean(name, known))
    return Options(**given)
