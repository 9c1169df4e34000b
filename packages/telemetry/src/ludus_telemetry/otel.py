"""Sends the spans of rollouts through OpenTelemetry's SDK, configured by the standard OTEL_* variables.

The SDK exports in its own thread. If the receiver is down, spans are lost, never a rollout.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ludus.errors import UserError, missing_extra
from ludus.model import Model
from ludus.rollout import Rollout
from ludus.runtime.keys import without_keys
from ludus_telemetry.spans import RolloutSpan, SpanOptions, spans_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

#: The standard variable that allows texts of prompts and answers in spans.
CAPTURE_TEXTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

#: The export queue, unless OTEL_BSP_MAX_QUEUE_SIZE is set: a rollout queues all of its spans at once, and the SDK's
#: default of 2,048 is soon full.
QUEUE = 65_536

_NANO = 1_000_000_000


class SpanSender:
    """Makes the spans of finished rollouts and sends them."""

    def __init__(self, model: Model, run: str) -> None:
        texts = os.environ.get(CAPTURE_TEXTS, "").strip().lower()
        with_texts = texts in ("true", "1", "span_only", "span_and_event")
        self._options = SpanOptions.of(model, with_texts=with_texts)
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise missing_extra("opentelemetry-sdk", "otel", package="telemetry") from None
        # Without a handler, Python would print the SDK's warnings into the progress line.
        self._log = _FirstWarning()
        logging.getLogger("opentelemetry").addHandler(self._log)
        named = {"service.name": "ludus"} if not os.environ.get("OTEL_SERVICE_NAME") else {}
        self._trace, self._status, self._kind, self._no_parent = trace, trace.Status, trace.SpanKind, Context()
        self._provider = TracerProvider(resource=Resource.create({**named, "ludus.run": run}), shutdown_on_exit=False)
        self._exporter = _CountingExporter(_exporter())
        queue = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or QUEUE)
        counting: Any = self._exporter  # an exporter by its methods
        self._provider.add_span_processor(BatchSpanProcessor(counting, max_queue_size=queue))
        self._tracer = self._provider.get_tracer("ludus")
        self._sent = 0

    def add(self, rollout: Rollout) -> None:
        """Queue the spans of a rollout."""
        self._send(spans_of(rollout, self._options), None)

    def close(self) -> str | None:
        """Send what is queued. Returns a sentence if spans were lost."""
        try:
            self._provider.shutdown()
        finally:
            logging.getLogger("opentelemetry").removeHandler(self._log)
        lost = self._sent - self._exporter.exported
        if not lost:
            return None
        why = f": {self._log.text}" if self._log.text else ""
        return f"{lost:,} of {self._sent:,} spans were not sent{why}. Check OTEL_EXPORTER_OTLP_ENDPOINT"

    def _send(self, rollout_span: RolloutSpan, parent: Any) -> None:
        context = self._trace.set_span_in_context(parent) if parent is not None else self._no_parent
        kind = self._kind.CLIENT if rollout_span.is_client else self._kind.INTERNAL
        span = self._tracer.start_span(
            rollout_span.name, context, kind, rollout_span.attributes, start_time=int(rollout_span.start * _NANO)
        )
        if rollout_span.error is not None:
            span.set_attribute("error.type", rollout_span.error)
            span.set_status(self._status(self._trace.StatusCode.ERROR, rollout_span.cause or rollout_span.error))
        for child in rollout_span.children:
            self._send(child, span)
        self._sent += span.is_recording()
        span.end(end_time=int(rollout_span.end * _NANO))


class _CountingExporter:
    """Counts exported spans. The SDK calls only these three methods of an exporter."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self.exported = 0

    def export(self, spans: Sequence[Any]) -> Any:
        """Export spans."""
        result = self._exporter.export(spans)
        self.exported += len(spans) if result.name == "SUCCESS" else 0
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what the exporter holds back."""
        return bool(self._exporter.force_flush(timeout_millis))


class _FirstWarning(logging.Handler):
    """Keeps the first warning of the SDK, as one line without keys."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self.text = self.text or without_keys(" ".join(record.getMessage().split()))[:300].rstrip(".")


def _exporter() -> SpanExporter:
    """The exporter that the environment names: OTLP, or the console."""
    named = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() or "otlp"
    if named == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if named != "otlp":
        raise UserError(f"OTEL_TRACES_EXPORTER is {named:.40}", "Set it to otlp or console, or leave --otel out")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

            exporter: SpanExporter = GrpcExporter()
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

            exporter = HttpExporter()
    except ImportError:
        if protocol == "grpc":
            hint = "Install it with: pip install opentelemetry-exporter-otlp-proto-grpc"
            raise UserError("OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and its exporter is not installed", hint) from None
        raise missing_extra("opentelemetry-exporter-otlp-proto-http", "otel", package="telemetry") from None
    return exporter
