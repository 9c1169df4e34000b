"""Figures that an environment computes itself at the end of a run (`run_metrics` of its resources and its agent)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ludus.agent import Agent
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
        name, of_resources, of_agent = (
            environment.name,
            environment.resources.run_metrics,
            environment.agent.run_metrics,
        )
        numbers: dict[str, float] = {}
        try:
            if _overrides(of_resources, Resources.run_metrics):
                played = _of_environment(rollouts, name)
                numbers |= _finite(await step("verify", SECONDS, of_resources(environment.config, played)))
            if _overrides(of_agent, Agent.run_metrics):
                played = _of_environment(rollouts, name)
                numbers |= _finite(await step("agent", SECONDS, of_agent(played, dict(numbers))))
        except (Failure, TypeError, ValueError) as error:
            cause = error.cause if isinstance(error, Failure) else str(error)
            warnings.append(f"{name} could not compute its own metrics: {cause}")
        if numbers:
            figures[name] = numbers
    return figures


def _overrides(method: Any, default: Any) -> bool:
    return getattr(method, "__func__", None) is not getattr(default, "__func__", default)


def _of_environment(rollouts: Callable[[], Iterator[Rollout]], name: str) -> Iterator[Rollout]:
    return (rollout for rollout in rollouts() if rollout.job.environment in ("", name))


def _finite(values: Any) -> dict[str, float]:
    return {str(key): number for key, value in dict(values).items() if (number := finite_number(value)) is not None}
