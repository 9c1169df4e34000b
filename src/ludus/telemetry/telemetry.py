"""Everything that watches one collection: opened before it runs, stopped after it ended.

A collection without telemetry has none of this: no observer, no thread, no timer. Spans are made when a rollout has
been recorded; metrics are read when somebody asks for them. What fails here is said and never ends a collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ludus.collection.metrics import Metrics
from ludus.collection.progress import Progress
from ludus.collection.recording import Sink
from ludus.model import Model
from ludus.rollout import Rollout
from ludus.telemetry.state import RunState
from ludus.telemetry.writers import ChartWriter, RunFacts, open_writer

if TYPE_CHECKING:
    from ludus.telemetry.metrics_server import MetricsServer
    from ludus.telemetry.otel import SpanSender

#: Seconds between two points of a chart.
WRITE_EVERY = 10.0


class Telemetry:
    """Spans, a server of metrics and writers of charts, as many of them as are wanted. `problems` are sentences."""

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
        self._writers: list[tuple[str, ChartWriter]] = []
        self._written: RunState | None = None
        self._writing = threading.Lock()
        try:
            if traced is not None:
                from ludus.telemetry.otel import SpanSender

                self._spans = SpanSender(traced, facts.name)
            if metrics_port is not None:
                from ludus.telemetry.metrics_server import MetricsServer

                self._server = MetricsServer(metrics_port)
            for spec in log_to:
                self._writers.append((spec.partition(":")[0], open_writer(spec, facts)))
        except BaseException:
            self.close()
            raise

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds the metrics."""
        return self._server.url if self._server is not None else None

    def sink(self, other: Sink | None) -> Sink | None:
        """What gets every recorded rollout: spans if they are wanted, then the other sink."""
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
        writing = asyncio.create_task(self._write(state)) if self._writers else None
        completed = False
        try:
            yield
            completed = True
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            if self._server is not None:
                await self._server.stop()
                self._server = None
            await asyncio.to_thread(self.close, state() if self._writers else None, completed=completed)

    def close(self, last: RunState | None = None, *, completed: bool = False) -> None:
        """Write the last values, send the last spans, and close everything. May take seconds."""
        with self._writing:
            writers, self._writers = self._writers, []
            for name, writer in writers:
                with self._saying(name):
                    if last is not None and self._is_new(last):
                        writer.write(last.step, last.scalars(self._written))
                    writer.close(completed=completed)
        if self._spans is not None:
            with self._saying("spans"):
                lost = self._spans.close()
                self.problems += [lost] if lost is not None else []
        if self._server is not None:
            self._server.close()

    async def _write(self, state: Callable[[], RunState]) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY)
            now = state()
            if self._is_new(now):
                await asyncio.shield(asyncio.to_thread(self._write_all, now))

    def _is_new(self, now: RunState) -> bool:
        """Whether a rollout has ended since the last values were written."""
        return self._written is None or now.finished != self._written.finished

    def _write_all(self, now: RunState) -> None:
        with self._writing:
            scalars = now.scalars(self._written)
            for name, writer in self._writers:
                with self._saying(name):
                    writer.write(now.step, scalars)
            self._written = now

    @contextlib.contextmanager
    def _saying(self, name: str) -> Iterator[None]:
        """Keep the first error of each tool as a sentence: a broken tool must not end a collection."""
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            said = f"{name}: {type(error).__name__}: {reason}"
            if not any(each.startswith(f"{name}: ") for each in self.problems):
                self.problems.append(said)
