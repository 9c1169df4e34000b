"""Figures that an environment computes itself at the end of a run (`Resources.run_metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ludus.environment import Environment
from ludus.errors import Failure
from ludus.resources import Resources
from ludus.rollout import Rollout
from ludus.runtime.boundary import step
from ludus.store.statistics import finite_number

#: Seconds for the figures of one environment.
SECONDS = 600.0


async def own_metrics(
    environments: Iterable[Environment], rollouts: Callable[[], Iterator[Rollout]], warnings: list[str]
) -> dict[str, dict[str, float]]:
    """The figures of each environment that computes some. What goes wrong is a warning: the rollouts are recorded."""
    figures: dict[str, dict[str, float]] = {}
    for environment in environments:
        compute, name = environment.resources.run_metrics, environment.name
        if getattr(compute, "__func__", None) is Resources.run_metrics.__func__:  # type: ignore[attr-defined]
            continue
        of_environment = (rollout for rollout in rollouts() if rollout.job.environment in ("", name))
        try:
            values: Any = await step("verify", SECONDS, compute(environment.config, of_environment))
            numbers = {
                str(key): number for key, value in dict(values).items() if (number := finite_number(value)) is not None
            }
        except (Failure, TypeError, ValueError) as error:
            cause = error.cause if isinstance(error, Failure) else str(error)
            warnings.append(f"{name} could not compute its own metrics: {cause}")
            continue
        if numbers:
            figures[name] = numbers
    return figures
