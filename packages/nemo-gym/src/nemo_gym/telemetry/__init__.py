"""NeMo Gym's names for tracing. They have no effect: Ludus traces with `ludus collect --otel`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel

from nemo_gym.telemetry import connection_pool

__all__ = ["TelemetryConfig", "connection_pool", "is_enabled", "span", "traced"]

F = TypeVar("F")


class TelemetryConfig(BaseModel):
    """The block `telemetry` of a configuration. It is read, and nothing follows from it."""

    enabled: bool = False
    service_name: str | None = None
    span_groups: list[str] | None = None
    traces_enabled: bool = True
    metrics_enabled: bool = True
    memory_profiling: bool = False


def is_enabled() -> bool:
    """Whether spans are recorded: never."""
    return False


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[None]:
    """A block whose time is not recorded."""
    yield


def traced(function: F) -> F:
    """The function itself."""
    return function
