"""The curves of a bench as one figure: rollouts a second, and where the time of a rollout goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus_bench.profile.figures import COLOUR, FORMATS, SECOND_COLOUR, label_axes, new_figure, save_figure


def plot_format(path: Path) -> str:
    """The format of a figure, by the suffix of its file."""
    format_ = path.suffix.lower().lstrip(".")
    if format_ not in FORMATS:
        raise UserError(
            f"--plot {path} is not a file name for a figure", f"End it with {' or '.join('.' + f for f in FORMATS)}"
        )
    return format_


def write_curves(measured: dict[str, Any], path: Path) -> Path:
    """Draw rollouts a second (line) over the mean time of a rollout, split into service and waiting (bars)."""
    points = measured["points"]
    if not points:
        raise UserError("no point was measured, so there is no curve to draw", "See why each was left out")
    figure, axes = new_figure("Rollouts in flight: throughput, service and waiting")
    places = range(len(points))
    service, wait = [point["service_s"] for point in points], [point["wait_s"] for point in points]
    seconds = axes.twinx()
    seconds.bar(places, service, 0.5, color="#d5dde8", label="service (model's delay and CPU)")
    seconds.bar(places, wait, 0.5, bottom=service, color="#f0d6cf", label="waiting")
    p99 = [point["rollout_s"]["p99"] for point in points]
    seconds.plot(places, p99, color=SECOND_COLOUR, marker="^", linestyle=":", label="p99 of a rollout")
    seconds.set_ylabel("seconds of a rollout")
    axes.set_zorder(seconds.get_zorder() + 1)
    axes.patch.set_visible(False)
    rates = [point["rollouts_per_second"] for point in points]
    axes.plot(places, rates, color=COLOUR, marker="o", label="rollouts a second")
    axes.set_ylim(bottom=0)
    axes.set_xticks(list(places), [f"{point['in_flight']:,}" for point in points])
    handles = [handle for axis in (axes, seconds) for handle in axis.get_legend_handles_labels()[0]]
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="upper left")
    label_axes(axes, "rollouts in flight", "rollouts a second (line)")
    return save_figure(figure, path, plot_format(path))
