"""The figures of the comparison as Markdown: a table for each job, with a row for each framework and level."""

from collections.abc import Callable
from typing import Any

from installed import FRAMEWORKS

JOBS = {"single": "Single turn", "tool": "One tool call", "ten": "Ten turns", "harness": "A harness"}
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "framework": lambda run: "",
    "in flight": lambda run: f"{run['in_flight']:,}",
    "CPU of a rollout": lambda run: _seconds(run["cpu_ms"]),
    "rollouts a second": lambda run: _number(run["per_s"]),
    "overhead p50": lambda run: _seconds(run["overhead_p50_ms"]),
    "p99": lambda run: _seconds(run["overhead_p99_ms"]),
    "memory": lambda run: f"{run['memory_mb']:,.0f} MB",
    "processes": lambda run: str(run["processes"]),
    "start (CPU)": lambda run: f"{_number(run['start_s'])} s ({_number(run['start_cpu_s'])} s)",
    "asked at once": lambda run: f"{run['most_held']:,}",
    "end": lambda run: _end(run),
}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _seconds(milliseconds: float) -> str:
    return f"{_number(milliseconds)} ms" if milliseconds < 1000 else f"{_number(milliseconds / 1000)} s"


def _end(run: dict[str, Any]) -> str:
    if run["end"] == "finished":
        return (
            f"all {run['rollouts']:,}" if not run.get("failed") else f"{run['failed']:,} of {run['rollouts']:,} failed"
        )
    return f"{run['end']}: {run['finished']:,} of {run['rollouts']:,}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(found: dict[str, Any]) -> str:
    """All tables, one after another."""
    lines: list[str] = []
    for job, title in JOBS.items():
        rows = [row for name in FRAMEWORKS if name in found for row in _rows(name, found[name], job)]
        if rows:
            lines += ["", f"{title}:", "", _row(list(COLUMNS)), _row(["---"] * len(COLUMNS)), *rows]
    behaviours = [_behaviour(name, found[name]) for name in FRAMEWORKS if "errors" in found.get(name, {})]
    if behaviours:
        lines += [
            "",
            _row(["framework", "every tenth task gets a 500", "kill and resume"]),
            _row(["---"] * 3),
            *behaviours,
        ]
    return "\n".join(lines)


def _rows(name: str, figures: dict[str, Any], job: str) -> list[str]:
    shown = f"{FRAMEWORKS[name].title} {figures['version']}"
    rows = []
    for key, run in figures.items():
        if not key.startswith(f"{job} "):
            continue
        if "cpu_ms" in run:
            rows.append(_row([shown, *[column(run) for column in list(COLUMNS.values())[1:]]]))
        else:
            level = f"{int(key.split()[1]):,}"
            rows.append(_row([shown, level, *["" for _ in range(len(COLUMNS) - 3)], run["end"]]))
    return rows


def _behaviour(name: str, figures: dict[str, Any]) -> str:
    failing, killed = figures["errors"], figures.get("kill")
    cells = [f"{FRAMEWORKS[name].title} {figures['version']}", _counts(failing)]
    if killed is None:
        return _row([*cells, "not played"])
    again = f"{killed['answers_before']} answers before, {killed['asked_again']} asked again"
    return _row([*cells, f"{_counts(killed)}; {again}"])


def _counts(run: dict[str, Any]) -> str:
    if run["end"] != "finished":
        return f"{run['end']}"
    counts = f"{run['tasks']} tasks, {run['failed']} failed, {run['zeros']} with reward 0, {run['doubled']} twice"
    return f"{counts}, mean {run['mean_reward']}, in {run['whole_s']:.0f} s"
