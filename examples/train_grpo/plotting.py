"""Draws training runs: the reward of each step, and the reward and exact answers on held-out tasks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def plot(results: list[dict[str, Any]], path: Path) -> Path | None:
    """Draw runs into one picture. Returns its path, or None if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for result in results:
        options = result["options"]
        kind = "control" if options["control"] else "trained"
        name, colour = f"{kind}, seed {options['seed']}", "tab:gray" if options["control"] else None
        known = left.get_legend_handles_labels()[1]
        name = ("_control" if "control" in known else "control") if options["control"] else name  # one entry for all
        steps = result["steps"]
        (line,) = left.plot(
            [each["step"] for each in steps], [each["reward"] for each in steps], color=colour, label=name
        )
        held = result["evaluations"]
        at = [each["step"] for each in held]
        right.plot(at, [each["reward"] for each in held], color=line.get_color(), marker="o")
        exact = [each["exact"] for each in held]
        right.plot(at, exact, color=line.get_color(), marker="x", linestyle="--")
    first = results[0]["options"]
    figure.suptitle(f"{first['environment']} with {first['model']}")
    for axes, title in ((left, "training tasks"), (right, "held-out tasks, greedy")):
        axes.set(title=title, xlabel="step", ylim=(0, 1.05))
    left.legend(fontsize="small")
    right.plot([], [], color="black", marker="o", label="reward")
    right.plot([], [], color="black", marker="x", linestyle="--", label="share of exact answers")
    right.legend(fontsize="small")
    left.set_ylabel("mean reward")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
