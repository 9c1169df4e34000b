"""Metrics in Prometheus' text format, for our servers and for a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.http.messages import Reply


@dataclass
class Metric:
    """A metric of kind `counter` or `gauge`: its values, each with its labels. Its name gets the prefix `ludus_`."""

    name: str
    kind: str
    samples: Sequence[tuple[float, Mapping[str, Any]]]
    help: str = ""


def prometheus_reply(metrics: Iterable[Metric]) -> Reply:
    """The reply that Prometheus reads."""
    body = "".join(line + "\n" for metric in metrics for line in _lines(metric))
    return Reply(body.encode(), kind=b"text/plain; version=0.0.4; charset=utf-8")


def _lines(metric: Metric) -> Iterable[str]:
    name = f"ludus_{metric.name}"
    if metric.help:
        yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for value, labels in metric.samples:
        listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{listed}}} {value}" if listed else f"{name} {value}"


def _escaped(text: Any) -> str:
    """A label's value. A kind of failure may come from a server or an author and hold any character."""
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
