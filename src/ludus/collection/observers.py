"""What watches a run from outside. Telemetry is in a package of its own and is found through its entry point."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ludus.collection.metrics import Metrics
from ludus.collection.plan import CollectionPlan
from ludus.collection.progress import Progress
from ludus.collection.recording import Sink
from ludus.runtime.installed import packaged

#: The entry point group: a function that opens a `RunObserver` for a `CollectionPlan`.
_GROUP = "ludus.observers"


class RunObserver(Protocol):
    """Watches a run from outside, as telemetry does. It never ends the run."""

    problems: list[str]  #: sentences about what failed in the observer itself

    @property
    def metrics_url(self) -> str | None:
        """Where it serves the metrics of the run, if it does."""

    def sink(self, other: Sink | None) -> Sink | None:
        """What gets every recorded rollout and passes it to the other sink."""

    def watching(self, metrics: Metrics, progress: Progress) -> AbstractAsyncContextManager[None]:
        """Watch the run until the context ends."""

    def close(self) -> None:
        """Close an observer whose run did not start."""


def open_observer(plan: CollectionPlan) -> RunObserver | None:
    """What watches a run, opened; None if its options ask for nothing."""
    wanted = plan.options.telemetry
    if not wanted.otel and wanted.metrics_port is None and not wanted.log_to:
        return None
    opening = packaged(_GROUP, "telemetry", "what --otel, --metrics-port and --log-to need", "telemetry")
    observer: RunObserver = opening(plan)
    return observer
