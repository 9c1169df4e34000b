"""The table of a run's metrics as plain text: the command line, `print` and notebooks show these facts.

Texts come from files and models, and are not cleaned here: the code that prints them removes escape codes.
"""

from __future__ import annotations

from typing import Any

from ludus.collection.broken_sequences import broken_row
from ludus.store.verifiers import verifier_warnings

#: How many kinds of failures, and how many different tool errors, the table lists.
MAX_FAILURES = 5
MAX_TOOL_ERRORS = 5
#: How many figures of an environment's own the table lists.
MAX_OWN = 6


def facts(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of the table of a run's metrics: a name and a text each."""
    counts, reward = metrics["counts"], metrics["reward"]
    rows = [("dispatched", f"{counts['dispatched']:,}")]
    rows += [(name, f"{counts[name]:,}") for name in ("completed", "failed", "masked")]
    if ended := counts.get("ended_early"):
        rows.append(("ended early", f"{ended:,}"))
    rows += [(f"  {kind}", f"{count:,}") for kind, count in list(metrics["failures"].items())[:MAX_FAILURES]]
    too_long = metrics.get("prompts_too_long") or {}
    if long := too_long.get("rollouts"):
        what = f"{long:,} rollout{'' if long == 1 else 's'} got no answer"
        rows.append(("prompt too long", f"{what}: {too_long['first']}"))
    if (broken := broken_row(metrics.get("broken_sequences"))) is not None:
        rows.append(("sequences", broken))
    raised = tool_errors(metrics.get("tool_errors"))
    rows += [("" if number else "tool errors", line) for number, line in enumerate(raised[:MAX_TOOL_ERRORS])]
    if len(raised) > MAX_TOOL_ERRORS:
        rows.append(("", f"{len(raised) - MAX_TOOL_ERRORS} more in metrics.json"))
    rows += [("verifiers", sentence) for sentence in verifier_warnings(metrics.get("several_verifiers") or {})]
    if reward["mean"] is not None:
        interval = reward["ci95"]
        spread = f" (95 % {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
        rows.append(("mean reward", f"{reward['mean']:.3f}{spread}"))
    mark, most = pass_mark(metrics.get("pass_reward")), _most_repeats(metrics)
    for name, k in [("pass@k", k) for k in _ks(most)] + [("pass^k", most)] * (most > 1):
        if str(k) in metrics.get(name, {}):
            rows.append((f"{name[:-1]}{k}", f"{metrics[name][str(k)]:.3f} ({mark})"))
    for environment, figures in (metrics.get("own") or {}).items():
        shown = [f"{name} {value:.4g}" for name, value in list(figures.items())[:MAX_OWN]]
        more = [f"{len(figures) - MAX_OWN} more in metrics.json"] if len(figures) > MAX_OWN else []
        rows.append((f"of {environment}", ", ".join(shown + more)))
    if usage := metrics["usage"]:
        rows.append(("tokens", f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out"))
    if times := _times(metrics["seconds"]):
        rows.append(("time", times))
    return rows


def environment_lines(metrics: dict[str, Any]) -> list[list[str]]:
    """The lines of the table of a mixed run's environments, the header first. None for a run of one environment."""
    environments = metrics.get("environments")
    if not environments:
        return []
    ks = _ks(_most_repeats(metrics))
    rates = [f"pass@{k}" for k in ks]
    lines = [["environment", "completed", "failed", "masked", "mean reward", *rates, "a pass"]]
    for name, own in environments.items():
        counts = [f"{own['counts'][outcome]:,}" for outcome in ("completed", "failed", "masked")]
        values = [own["reward"]["mean"], *(own["pass@k"].get(str(k)) for k in ks)]
        numbers = ["-" if value is None else f"{value:.3f}" for value in values]
        lines.append([name, *counts, *numbers, pass_mark(own["pass_reward"])])
    return lines


def pass_mark(pass_reward: Any) -> str:
    """What counts as a pass: `reward ≥ 0.5`. Without a number, each environment has its own threshold."""
    return f"reward ≥ {pass_reward:g}" if isinstance(pass_reward, (int, float)) else "by environment"


def tool_errors(counted: Any) -> list[str]:
    """A line for each exception of a tool: how often, which tool, which exception, and the author's line."""
    lines = []
    for error in counted if isinstance(counted, list) else ():
        if isinstance(error, dict):
            times = "once" if error.get("count") == 1 else f"{error.get('count')} times"
            where = f" at {error['where']}" if error.get("where") else ""
            lines.append(f"{times} {error.get('tool')}: {error.get('exception')}{where}")
    return lines


def with_place(cause: Any, where: Any) -> str:
    """The cause of a failure, and the author's line that raised it if one did."""
    return f"{cause} ({where})" if where else str(cause)


def clock(seconds: float) -> str:
    """Format seconds: 42 s, 3:07, 1:02:33."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def span(seconds: float) -> str:
    """Format a short time: 13.5 s, 1.2 ms, 59 µs."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.1f} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def _times(seconds: dict[str, Any]) -> str:
    """The time of the whole run, if it is known, and the mean times of the stages."""
    wall = seconds.get("wall")
    stages = [(stage, seconds[stage]["mean"]) for stage in ("model", "tool", "verify") if stage in seconds]
    means = ", ".join(f"{stage} {span(mean)}" for stage, mean in stages)
    return "; ".join([*([clock(wall)] if wall is not None else []), *([f"mean {means}"] if means else [])])


def _most_repeats(metrics: dict[str, Any]) -> int:
    """The largest k that some task has enough completed repeats for."""
    return max(map(int, metrics["pass@k"]), default=1)


def _ks(most: int) -> list[int]:
    """The k of pass@k that the tables show."""
    return sorted({1, most})
