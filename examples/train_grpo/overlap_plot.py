"""Draws what generating ahead of training brings: the held-out reward of runs of `overlap.py` over their time.

    python examples/train_grpo/overlap_plot.py examples/train_grpo/results/overlap-*.json --output overlap.png

Prints when each run first reached a reward, on the straight line between two measurements.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from policy import read_metrics

from ludus.errors import UserError

#: What `--ahead` was, with a colour and a name.
KINDS = ((0, "tab:gray", "synchronous"), (1, "tab:blue", "one step ahead"))


def curve(result: dict[str, Any]) -> list[tuple[float, float]]:
    """Seconds of training, and the reward of sampled answers to held-out tasks."""
    if any(len(kept.get("agents", ())) != 1 for kept in result["kept"]):
        raise UserError(f"{result['options']['output']} was not measured, or with several agents", "Use --only measure")
    (agent,) = result["kept"][0]["agents"]
    return [(kept["seconds"], kept["agents"][agent]["sampled"]) for kept in result["kept"]]


def seconds_to(reward: float, points: list[tuple[float, float]]) -> float | None:
    """When a curve first reaches a reward."""
    for (before, low), (after, high) in pairwise(points):
        if low < reward <= high:
            return before + (after - before) * (reward - low) / (high - low)
    return None


def main() -> None:
    """Draw the files of metrics that are named."""
    parser = argparse.ArgumentParser(description="Draw the held-out reward of synchronous and asynchronous runs.")
    parser.add_argument("metrics", type=Path, nargs="+", help="metrics.json of each run")
    parser.add_argument("--reward", type=float, default=0.7, help="print when each run reached it")
    parser.add_argument("--output", type=Path, default=Path("overlap.png"))
    options = parser.parse_args()
    if find_spec("matplotlib") is None:
        raise UserError("matplotlib is not installed", "pip install 'ludus-gym[plot]'")
    from matplotlib.figure import Figure

    results = [read_metrics(path) for path in options.metrics]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for ahead, colour, name in KINDS:
        for result in results:
            if result["options"]["ahead"] != ahead:
                continue
            points = curve(result)
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3, label=name)
            name = "_"  # one entry in the legend
            reached = seconds_to(options.reward, points)
            told = f"{options.reward} after {reached:.1f} s" if reached is not None else f"never {options.reward}"
            spent = ", ".join(f"{key} {seconds:.1f}" for key, seconds in result["seconds"].items())
            print(
                f"ahead {ahead}, seed {result['options']['seed']}: {told}, {points[-1][1]:.2f} at the end, "
                f"{points[-1][0]:.1f} s ({spent})"
            )
    axes.set(xlabel="seconds of training", ylabel="held-out reward, sampled answers", ylim=(0, 1))
    axes.set_title(f"{results[0]['options']['environment']}: {results[0]['options']['steps']} steps on one GPU")
    axes.legend()
    figure.savefig(options.output, dpi=120)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
