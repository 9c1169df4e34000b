"""The figures of a profile, as PNG or SVG. They are drawn without a display. Names are shown as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus_bench.profile.figures import COLOUR, SECOND_COLOUR, SIZE, label_axes, new_figure, save_figure
from ludus_bench.profile.tasks import TaskProfile

#: How many tasks, environments, stages or components a figure names.
MAX_NAMED = 25


def write_plots(summary: dict[str, Any], tasks: list[TaskProfile], folder: Path, format_: str) -> list[Path]:
    """Draw the figures of a profile into a folder. A figure without anything to show is left out."""
    overall = summary["overall"]
    figures = {
        "pass_rates": _pass_rates(tasks),
        "learning_signal": _learning_signal(summary),
        "length": _length(overall["length"]),
        "seconds": _seconds(overall["seconds"]),
        "components": _components(overall["components"]["each"]),
    }
    return [save_figure(figure, folder / f"{name}.{format_}", format_) for name, figure in figures.items() if figure]


def write_comparison(pairs: list[tuple[str, float, float]], names: tuple[str, str], folder: Path, format_: str) -> Path:
    """Draw the pass rates of two policies against each other, one point for each task."""
    figure, axes = new_figure("Pass rate of each task under two policies", (5.2, 5.2))
    counts: dict[tuple[float, float], int] = {}
    for _, of_a, of_b in pairs:
        counts[of_a, of_b] = counts.get((of_a, of_b), 0) + 1
    sizes = [18 + 12 * min(count, 40) for count in counts.values()]
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--", label="as often as before")
    axes.scatter([a for a, _ in counts], [b for _, b in counts], s=sizes, color=COLOUR, alpha=0.6, label="tasks")
    axes.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), aspect="equal")
    label_axes(axes, f"pass rate in A ({_short(names[0], 40)})", f"pass rate in B ({_short(names[1], 40)})")
    axes.legend(loc="lower right", frameon=False)
    return save_figure(figure, folder / f"compare.{format_}", format_)


def _pass_rates(tasks: list[TaskProfile]) -> Any:
    rates = [task.pass_rate for task in tasks if task.pass_rate is not None]
    if not rates:
        return None
    figure, axes = new_figure(f"How difficult the {len(rates):,} tasks are")
    axes.hist(rates, bins=[step / 10 - 0.05 for step in range(12)], color=COLOUR, edgecolor="white")
    axes.set_xticks([step / 10 for step in range(11)])
    axes.yaxis.get_major_locator().set_params(integer=True)
    label_axes(axes, "pass rate of a task", "tasks")
    return figure


def _learning_signal(summary: dict[str, Any]) -> Any:
    signals = {name: environment["learning_signal"] for name, environment in summary["environments"].items()}
    shown = [(name or "(no name)", signal) for name, signal in signals.items() if signal["groups"]][:MAX_NAMED]
    if not shown:
        return None
    figure, axes = new_figure("Groups that carry a learning signal", (SIZE[0], 1.6 + 0.45 * len(shown)))
    bars = axes.barh(range(len(shown)), [signal["share"] for _, signal in shown], color=COLOUR, height=0.6)
    labels = [f" {signal['with_signal']:,} of {signal['groups']:,}" for _, signal in shown]
    axes.bar_label(bars, labels)
    axes.set(xlim=(0, 1.2), ylim=(-0.6, max(len(shown) - 0.4, 0.6)))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    _name_ticks(axes.yaxis, axes.set_yticks, [name for name, _ in shown])
    label_axes(axes, "share of groups whose rewards differ", "environment")
    return figure


def _length(length: dict[str, Any]) -> Any:
    bins = length["bins"]
    if not bins:
        return None
    figure, axes = new_figure("Length against reward")
    places, unit = range(len(bins)), length["unit"]
    counts = axes.twinx()
    counts.bar(places, [part["rollouts"] for part in bins], color="#d5dde8", width=0.8)
    counts.set_ylabel("rollouts (bars)")
    counts.yaxis.get_major_locator().set_params(integer=True)
    axes.set_zorder(counts.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.plot(places, [part["mean_reward"] for part in bins], color=SECOND_COLOUR, marker="o")
    names = [f"{part['from']:,}-{part['to']:,}" for part in bins]
    _name_ticks(axes.xaxis, axes.set_xticks, names, rotation=30)
    label_axes(axes, f"length of the answer in {unit}", "mean reward (line)")
    return figure


def _seconds(seconds: dict[str, Any]) -> Any:
    stages = [(stage, times) for stage, times in seconds.items() if times.get("count")][:MAX_NAMED]
    if not stages:
        return None
    figure, axes = new_figure("Seconds by stage of a rollout")
    for offset, key, colour in ((-0.2, "mean", COLOUR), (0.2, "p95", SECOND_COLOUR)):
        places = [place + offset for place in range(len(stages))]
        axes.bar(places, [max(times[key], 1e-7) for _, times in stages], 0.4, color=colour, label=key)
    axes.set_yscale("log")
    axes.legend(frameon=False)
    _name_ticks(axes.xaxis, axes.set_xticks, [stage for stage, _ in stages])
    label_axes(axes, "stage", "seconds for each rollout (log scale)")
    return figure


def _components(components: dict[str, Any]) -> Any:
    names = list(components)[:MAX_NAMED]
    if not names:
        return None
    columns = ["reward", *names]
    cells = [[_correlation(components, row, column) for column in columns] for row in names]
    figure, axes = new_figure(
        "Correlation of the reward's components", (2.6 + 0.7 * len(columns), 2.2 + 0.6 * len(names))
    )
    image = axes.imshow([[_known(cell) for cell in row] for row in cells], cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            colour = "white" if cell is not None and abs(cell) > 0.6 else "black"
            axes.text(x, y, "-" if cell is None else f"{cell:.2f}", ha="center", va="center", fontsize=8, color=colour)
    _name_ticks(axes.xaxis, axes.set_xticks, columns, rotation=30)
    _name_ticks(axes.yaxis, axes.set_yticks, names)
    label_axes(axes, "reward, and its components", "component")
    figure.colorbar(image, ax=axes, label="correlation")
    return figure


def _correlation(components: dict[str, Any], row: str, column: str) -> float | None:
    component = components[row]
    value = component["correlation_with_reward"] if column == "reward" else component["correlation"].get(column)
    return 1.0 if row == column else value


def _known(cell: float | None) -> float:
    return float("nan") if cell is None else cell


def _name_ticks(axis: Any, set_ticks: Any, names: list[str], rotation: int = 0) -> None:
    """Name the ticks of an axis. A `$` in a name is a dollar and not a formula."""
    set_ticks(range(len(names)), [_short(name, 30) for name in names], rotation=rotation)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)
        if rotation:
            label.set_horizontalalignment("right")


def _short(name: str, length: int) -> str:
    """A name that fits a figure, without control characters."""
    shown = "".join(char if char.isprintable() else "?" for char in name)
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"
