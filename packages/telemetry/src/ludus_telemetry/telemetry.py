"""Everything that watches one collection: opened before it runs, stopped after it ended.

A collection without telemetry has none of this: no observer, no thread, no timer. Spans are built after a rollout was
recorded; metrics are read on request. Errors here are reported and never end a collection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING

from ludus.collection.metrics import Metrics
from ludus.collection.progress import Progress
from ludus.collection.recording import Sink
from ludus.model import Model
from ludus.rollout import Rollout
from ludus.runtime.threads import in_thread
from ludus_telemetry.charts import Chart, close_all, close_limit
from ludus_telemetry.state import RunState
from ludus_telemetry.writers import RunFacts, open_writer, reason

if TYPE_CHECKING:
    from ludus_telemetry.metrics_server import MetricsServer
    from ludus_telemetry.otel import SpanSender


class Telemetry:
    """Spans, a metrics server and chart writers, each only if wanted. `problems` are sentences."""

    def __init__(
        self,
        facts: RunFacts,
        traced: Model | None = None,
        metrics_port: int | str | None = None,
        log_to: Sequence[str] = (),
    ) -> None:
        """Open everything. `traced` is the model, if spans are wanted."""
        self.problems: list[str] = []
        self._spans: SpanSender | None = None
        self._server: MetricsServer | None = None
        self._charts: list[Chart] = []
        try:
            if traced is not None:
                from ludus_telemetry.otel import SpanSender

                self._spans = SpanSender(traced, facts.name)
            if metrics_port is not None:
                from ludus_telemetry.metrics_server import MetricsServer

                self._server = MetricsServer(metrics_port)
            for spec in log_to:
                self._charts.append(Chart(spec.partition(":")[0], open_writer(spec, facts), self._say))
        except BaseException:
            self.close()
            raise

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds the metrics."""
        return self._server.url if self._server is not None else None

    def sink(self, other: Sink | None) -> Sink | None:
        """The sink for recorded rollouts: spans if they are wanted, then the other sink."""
        spans = self._spans
        if spans is None:
            return other

        async def both(rollout: Rollout) -> None:
            with self._saying("spans"):
                spans.add(rollout)
            if other is not None:
                await other(rollout)

        return both

    @contextlib.asynccontextmanager
    async def watching(self, metrics: Metrics, progress: Progress) -> AsyncIterator[None]:
        """Serve and write the metrics of a run until it ends."""

        def state() -> RunState:
            return RunState.of(metrics, progress)

        if self._server is not None:
            await self._server.start(state)
        writing = [asyncio.create_task(chart.follow(state)) for chart in self._charts]
        completed = False
        try:
            yield
            completed = True
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
            if self._server is not None:
                await self._server.stop()
                self._server = None
            await in_thread(self.close, state() if self._charts else None, completed=completed)

    def close(self, last: RunState | None = None, *, completed: bool = False) -> None:
        """Write the last values, send the last spans, and close everything. May take seconds."""
        charts, self._charts = self._charts, []
        for chart in close_all(charts, last, completed=completed):
            within = f"no answer within {close_limit(completed=completed):g} s after the collection ended"
            self._say(chart.name, TimeoutError(f"{within}: the last values may be missing there"))
        if self._spans is not None:
            with self._saying("spans"):
                lost = self._spans.close()
                self.problems += [lost] if lost is not None else []
        if self._server is not None:
            self._server.close()

    @contextlib.contextmanager
    def _saying(self, name: str) -> Iterator[None]:
        """A broken tool must not end a collection."""
        try:
            yield
        except Exception as error:
            self._say(name, error)

    def _say(self, name: str, error: Exception) -> None:
        """Keep the first error of each tool as a sentence."""
        if not any(problem.startswith(f"{name}: ") for problem in self.problems):
            self.problems.append(f"{name}: {reason(error)[:340]}")
