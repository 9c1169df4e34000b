"""What `ludus bench` prints for people."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ludus.cli.screen import emit, one_line, print_unbroken, text

_COLUMNS = (
    "in flight",
    "workers",
    "rollouts/s",
    "p50",
    "p99",
    "service",
    "waiting",
    "CPU",
    "stub CPU",
    "memory",
    "failed",
)


def show_bench(console: Console, measured: dict[str, Any]) -> None:
    """Print a line for each point, and the first bottleneck."""
    title = f"{one_line(measured['environment'])}, {measured['model']}, delay {one_line(measured['delay']['spec'])} s"
    table = Table(title=text(title), title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for name in _COLUMNS:
        table.add_column(text(name), justify="right")
    for point in measured["points"]:
        table.add_row(*_cells(point))
    if measured["points"]:
        print_unbroken(console, table)
        emit(console, text("times are of a rollout; CPU is of collector and workers, for a rollout", "dim"))
    for skipped in measured["left_out"]:
        emit(console, text(f"{skipped['in_flight']:,} in flight: left out, {one_line(skipped['reason'])}", "yellow"))
    for point in measured["points"]:
        advice = one_line(point["bottleneck"]["advice"])
        emit(console, text(f"first bottleneck at {point['in_flight']:,} in flight: {advice}"))


def _cells(point: dict[str, Any]) -> list[str]:
    times, cpu = point["rollout_s"] or {}, point["cpu_s"]
    return [
        f"{point['in_flight']:,}",
        f"{point['workers']:,}",
        f"{point['rollouts_per_second']:,.0f}",
        f"{times.get('p50', 0.0):.2f} s",
        f"{times.get('p99', 0.0):.2f} s",
        f"{point['service_s']:.2f} s",
        f"{point['wait_s']:.2f} s",
        f"{(cpu['collector'] + cpu['workers']) * 1000:.2f} ms",
        f"{cpu['stub'] * 1000:.2f} ms",
        f"{point['memory_bytes'] / 1000:,.0f} KB",
        f"{point['failed']:,}",
    ]
