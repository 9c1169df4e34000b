"""Draws training runs with 95 % bands: the reward of each step, and the reward on held-out tasks.

    python examples/train_grpo/plotting.py examples/train_grpo/results/additions-seed*.json --output additions.png

The band of several seeds is Student's t interval of the seeds' means. Every seed has its own training and held-out
tasks, so the differences between seeds hold the luck of tasks, of sampling and of training. With a single seed, the
band of the held-out reward covers its tasks only, and the training reward has none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from ludus.store.statistics import ClusteredMean

Result = dict[str, Any]
#: A step, the mean, and the interval of the mean.
Point = tuple[int, float, tuple[float, float] | None]

#: The training reward of a seed is averaged over this many steps: a step sees only a few tasks.
SMOOTHED = 5


def mean_interval(values: list[float], *, bounded: bool = False) -> tuple[float, tuple[float, float] | None]:
    """The mean and its 95 % interval, inside 0 and 1. `bounded` corrects it for shares and rewards of single tasks."""
    clustered = ClusteredMean()
    for value in values:
        clustered.add(1, value)
    interval = clustered.interval((0.0, 1.0) if bounded else None)
    return clustered.mean or 0.0, None if interval is None else (max(0.0, interval[0]), min(1.0, interval[1]))


def held_out(results: list[Result], figure: str = "reward") -> list[Point]:
    """A figure of the held-out tasks at the steps at which all seeds have it: `reward`, `exact` or `sampled`."""
    seeds = [
        {evaluation["step"]: evaluation for evaluation in result["evaluations"] if figure in evaluation}
        for result in results
    ]
    points: list[Point] = []
    for step in sorted(set.intersection(*map(set, seeds))):
        at = [seed[step] for seed in seeds]
        if len(at) > 1:
            points.append((step, *mean_interval([evaluation[figure] for evaluation in at])))
        else:
            _, interval = mean_interval(at[0].get("rewards", []), bounded=True)
            interval = at[0].get(f"{figure}_interval", interval)
            points.append((step, at[0][figure], interval and tuple(interval)))
    return points


def training(results: list[Result]) -> list[Point]:
    """The training reward of the steps that all seeds have, each the mean of the last `SMOOTHED` steps."""
    seeds = [[step["reward"] for step in result["steps"]] for result in results]
    points: list[Point] = []
    for end in range(1, min(map(len, seeds)) + 1):
        means = [sum(seed[max(0, end - SMOOTHED) : end]) / min(end, SMOOTHED) for seed in seeds]
        points.append((results[0]["steps"][end - 1]["step"], *mean_interval(means)))
    return points


def plot(results: list[Result], path: Path) -> Path | None:
    """Draw runs of one environment into one picture. Returns its path, or None if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    sampled = any("sampled" in evaluation for result in results for evaluation in result["evaluations"])
    figures = {"reward": "held-out tasks, greedy"} | ({"sampled": "held-out tasks, sampled"} if sampled else {})
    figure = Figure(figsize=(4.5 * (1 + len(figures)), 4), layout="constrained")
    left, *others = figure.subplots(1, 1 + len(figures), sharey=True)
    for kind, colour in (("trained", "tab:blue"), ("control", "tab:gray")):
        runs = [result for result in results if result["options"]["control"] == (kind == "control")]
        if not runs:
            continue
        name = f"{kind}, {len(runs)} {'seed' if len(runs) == 1 else 'seeds'}"
        _draw(left, training(runs), colour, name)
        for axes, measured in zip(others, figures, strict=True):
            _draw(axes, held_out(runs, measured), colour, name, marker="o")
            for run in runs if len(runs) > 1 else []:
                alone = [(at["step"], at[measured]) for at in run["evaluations"] if measured in at]
                axes.plot(*zip(*alone, strict=True), color=colour, linewidth=0.6, alpha=0.7)
        exact = [(step, share) for step, share, _ in held_out(runs, "exact")]
        others[0].plot(
            *zip(*exact, strict=True), color=colour, marker="x", linestyle="--", label=f"{kind}, share of exact answers"
        )
    first = results[0]["options"]
    figure.suptitle(f"{first['environment']} with {first['model']}: mean reward and its 95 % interval")
    left.set(title=f"training tasks, mean of {SMOOTHED} steps", xlabel="step", ylim=(0, 1.05), ylabel="mean reward")
    for axes, title in zip(others, figures.values(), strict=True):
        axes.set(title=title, xlabel="step")
    others[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _draw(axes: Any, points: list[Point], colour: str, name: str, marker: str | None = None) -> None:
    """A line with its band."""
    axes.plot([step for step, *_ in points], [mean for _, mean, _ in points], color=colour, marker=marker, label=name)
    banded = [(step, interval) for step, _, interval in points if interval is not None]
    low, high = [interval[0] for _, interval in banded], [interval[1] for _, interval in banded]
    axes.fill_between([step for step, _ in banded], low, high, color=colour, alpha=0.2, linewidth=0)


def main() -> None:
    """Draw the files of metrics that are named."""
    parser = argparse.ArgumentParser(description="Draw training runs of one environment with 95 % bands.")
    parser.add_argument("metrics", type=Path, nargs="+", help="metrics.json of each run")
    parser.add_argument("--output", type=Path, default=Path("curves.png"))
    options = parser.parse_args()
    results = [json.loads(path.read_text()) for path in options.metrics]
    if plot(results, options.output) is None:
        sys.exit("error: matplotlib is not installed. pip install 'ludus-gym[plot]'")
    for kind in (False, True):
        runs = [result for result in results if result["options"]["control"] == kind]
        for figure in ("reward", "sampled") if runs else ():
            points = held_out(runs, figure)
            for step, mean, interval in points[:1] + points[1:][-1:]:
                band = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
                print(f"{'control' if kind else 'trained'}, step {step}: held-out {figure} {mean:.3f}{band}")


if __name__ == "__main__":
    main()
