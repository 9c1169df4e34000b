"""The tables of `ludus profile`."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ludus.cli.screen import emit, facts_table, one_line, text
from ludus.collection.table import pass_mark, span, tool_errors
from ludus.compare.comparison import say

#: How many tasks, tools and components are shown. `--json` and the files have more.
MAX_SHOWN = 10


def show_profile(console: Console, summary: dict[str, Any]) -> None:
    """Print the profile of runs."""
    overall = summary["overall"]
    console.print(facts_table(", ".join(summary["runs"]), _overall_facts(overall)))
    if len(summary["environments"]) > 1:
        console.print(_environments(summary["environments"]))
    for table in (_stages(overall), _tools(overall), _components(overall), _lengths(overall), _tasks(summary)):
        if table is not None:
            console.print(table)
    for line in tool_errors(overall["tool_errors"])[:MAX_SHOWN]:
        emit(console, text(f"tool error: {one_line(line)}", "yellow"))
    if (subset := summary.get("subset")) is not None:
        band = f"pass rates from {subset['low']:g} to {subset['high']:g}"
        left = f"{subset['too_hard']:,} are too hard, {subset['too_easy']:,} too easy, {subset['unknown']:,} unknown"
        emit(console, text(f"subset: {subset['kept']:,} tasks with {band}; {left}", "bold"))
    for path in summary.get("written", {}).get("files", []):
        emit(console, text(f"written to {path}", "dim"))


def show_comparison(console: Console, summary: dict[str, Any]) -> None:
    """Print two policies side by side."""
    comparison, sides = summary["comparison"], (summary["overall"], summary["compared_with"]["overall"])
    rows = zip(*(_overall_facts(side) for side in sides), strict=False)
    table = Table(title="Two policies", title_justify="left")
    for name in ("", f"A: {comparison['a']}", f"B: {comparison['b']}"):
        table.add_column(text(name), justify="right" if name else "left", overflow="fold")
    shared = dict(_overall_facts(sides[0])), dict(_overall_facts(sides[1]))
    for name in dict.fromkeys(name for pair in rows for name, _ in pair):
        table.add_row(text(name), *(text(side.get(name, "-")) for side in shared))
    console.print(table)
    if comparison["moved"]:
        moved = _table("tasks that moved most", "task", "pass rate in A", "in B", "change")
        for task in comparison["moved"]:
            rates = (f"{task[name]:.3f}" for name in ("pass_rate_a", "pass_rate_b"))
            moved.add_row(text(one_line(task["name"])), *rates, f"{task['change']:+.3f}")
        console.print(moved)
    counts = [f"{comparison[f'passed_{how}_often']:,} {how} often" for how in ("more", "less", "as")]
    emit(console, text(f"tasks that B passes: {', '.join(counts)}"))
    emit(console, text(comparison["sentence"], "bold"))


def show_load(console: Console, report: dict[str, Any]) -> None:
    """Print the figures of an environment under load."""
    memory, loop = report["memory"], report["loop"]
    rows = [
        ("sessions", f"{report['counts']['dispatched']:,}, {report['concurrency']:,} at once"),
        ("sessions a second", f"{report['sessions_per_second']:,.0f}"),
        ("failed", f"{report['counts']['failed']:,}"),
        *((f"  {kind}", f"{count:,}") for kind, count in list(report["failures"].items())[:MAX_SHOWN]),
    ]
    if memory is not None and memory["bytes_per_session"] is not None:
        resident = memory["resident_bytes_per_session"]
        rough = f", the process grew by {_bytes(resident)}" if resident is not None else ""
        rows.append(("memory per session", f"{_bytes(memory['bytes_per_session'])}{rough}"))
    if loop["lag"].get("count"):
        rows.append(("event loop lag", f"p95 {span(loop['lag']['p95'])}, longest {span(loop['lag']['max'])}"))
    console.print(facts_table(f"{report['environment']} under load", rows))
    for title, times in (("stages", report["stages"]), ("tools", report["tools"])):
        if times:
            table = _table(title, title[:-1], "calls", "p50", "p99", "longest", "errors")
            slowest = sorted(times.items(), key=lambda item: -item[1].get("p99", 0.0))
            for name, calls in slowest:
                cells = (span(calls[key]) for key in ("p50", "p99", "max"))
                errors = f"{calls['errors']:,}" if "errors" in calls else "-"
                table.add_row(text(one_line(name)), f"{calls['count']:,}", *cells, errors)
            console.print(table)
    for call in loop["blocked"]:
        where = f"{call['function']} (line {call['line']})"
        blocked = f"{call['stage']} of {call['environment']} blocked the event loop for {call['seconds']} s: {where}"
        emit(console, text(one_line(blocked), "yellow"))
    for line in tool_errors(report["tool_errors"])[:MAX_SHOWN]:
        emit(console, text(f"tool error: {one_line(line)}", "yellow"))


def _overall_facts(overall: dict[str, Any]) -> list[tuple[str, str]]:
    counts, signal, variance = overall["counts"], overall["learning_signal"], overall["variance"]
    rows = [("tasks", f"{overall['tasks']:,}")]
    rows += [(name, f"{counts[name]:,}") for name in ("completed", "failed", "masked")]
    rows += [(f"  {kind}", f"{count:,}") for kind, count in list(overall["failures"].items())[:MAX_SHOWN]]
    if overall["retried_attempts"]:
        rows.append(("retried attempts", f"{overall['retried_attempts']:,}"))
    rows.append((f"pass rate ({pass_mark(overall['pass_reward'])})", _estimate(overall["pass_rate"])))
    rows.append(("mean reward", _estimate(overall["reward"])))
    rows.append(("variance", f"{_number(variance['overall'])}, within tasks {_number(variance['within_tasks'])}"))
    share = f"{signal['share']:.1%}, {signal['with_signal']:,} of {signal['groups']:,}" if signal["groups"] else "-"
    rows.append(("groups with a learning signal", share))
    if (cost := overall["cost"]) is not None:
        per_rollout = (
            f", {cost['per_completed']:.6g} for each completed rollout" if cost["per_completed"] is not None else ""
        )
        least = "at least " if cost["unpriced_tokens"] else ""
        rows.append(("cost", f"{least}{cost['total']:.6g}{per_rollout}" if cost["total"] is not None else "-"))
        rows += [(f"  no price: {name}", f"{tokens:,} tokens") for name, tokens in cost["unpriced_tokens"].items()]
    stops = ", ".join(f"{count:,} {reason}" for reason, count in list(overall["stop_reasons"].items())[:MAX_SHOWN])
    return [*rows, ("stop reasons", stops or "-")]


def _environments(environments: dict[str, Any]) -> Table:
    table = _table("environments", "environment", "tasks", "completed", "failed", "masked", "pass rate", "signal")
    for name, summary in environments.items():
        counts = (f"{summary['counts'][outcome]:,}" for outcome in ("completed", "failed", "masked"))
        share = summary["learning_signal"]["share"]
        signal = "-" if share is None else f"{share:.1%}"
        cells = (f"{summary['tasks']:,}", *counts, _estimate(summary["pass_rate"]), signal)
        table.add_row(text(one_line(name or "(no name)")), *cells)
    return table


def _stages(overall: dict[str, Any]) -> Table | None:
    names = [*overall["seconds"], *(stage for stage in overall["tokens"] if stage not in overall["seconds"])]
    if not names:
        return None
    table = _table("by stage", "stage", "mean", "p95", "longest", "tokens in", "cached", "out")
    for name in names:
        times, tokens = overall["seconds"].get(name), overall["tokens"].get(name)
        seconds = [span(times[key]) for key in ("mean", "p95", "max")] if times else ["-"] * 3
        counts = [f"{tokens[key]:,}" for key in ("input", "cached", "output")] if tokens else ["-"] * 3
        table.add_row(text(name), *seconds, *counts)
    return table


def _tools(overall: dict[str, Any]) -> Table | None:
    if not overall["tools"]:
        return None
    table = _table("tools", "tool", "calls", "errors")
    for name, tool in list(overall["tools"].items())[:MAX_SHOWN]:
        table.add_row(text(one_line(name)), f"{tool['calls']:,}", f"{tool['errors']:,}")
    return table


def _components(overall: dict[str, Any]) -> Table | None:
    components = overall["components"]["each"]
    if not components:
        return None
    names = list(components)[:MAX_SHOWN]
    table = _table("reward components and their correlations", "component", "mean", "reward", *names)
    for name in names:
        own = components[name]
        pairs = ("1" if name == other else _number(own["correlation"].get(other)) for other in names)
        cells = (_number(own["mean"]), _number(own["correlation_with_reward"]))
        table.add_row(text(one_line(name)), *cells, *pairs)
    return table


def _lengths(overall: dict[str, Any]) -> Table | None:
    length = overall["length"]
    if not length["bins"]:
        return None
    across, within = (_number(length[key]) for key in ("correlation", "correlation_within_tasks"))
    title = f"length against reward: correlation {across}, within tasks {within}"
    table = _table(title, length["unit"], "rollouts", "mean reward", "pass rate")
    for part in length["bins"]:
        lengths = f"{part['from']:,}-{part['to']:,}"
        table.add_row(lengths, f"{part['rollouts']:,}", _number(part["mean_reward"]), _number(part["pass_rate"]))
    return table


def _tasks(summary: dict[str, Any]) -> Table | None:
    rated = [task for task in summary["tasks"] if task["pass_rate"] is not None]
    if not rated:
        return None
    shown = sorted(rated, key=lambda task: (task["pass_rate"], task["task_id"]))[:MAX_SHOWN]
    tasks = len(summary["tasks"]) + summary["tasks_left_out"]
    title = f"the hardest {len(shown)} of {tasks:,} tasks (--output writes all)" if tasks > len(shown) else "tasks"
    table = _table(title, "task", "pass rate", "passed", "variance", "failed", "masked")
    for task in shown:
        rate = _estimate({"mean": task["pass_rate"], "ci95": task["ci95"]})
        counts = f"{task['passed']:,} of {task['completed']:,}"
        cells = (rate, counts, _number(task["variance"]), f"{task['failed']:,}", f"{task['masked']:,}")
        table.add_row(text(one_line(task["name"])), *cells)
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=text(title), title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    table.add_column(text(first), overflow="fold")
    for name in others:
        table.add_column(text(one_line(name)), justify="right")
    return table


def _estimate(value: dict[str, Any]) -> str:
    if value["mean"] is None:
        return "-"
    interval = value["ci95"]
    return say(value["mean"]) + (f" (95 % {say(interval[0])} to {say(interval[1])})" if interval else "")


def _number(value: float | None) -> str:
    return "-" if value is None else say(value)


def _bytes(count: float) -> str:
    for unit, size in (("MB", 1e6), ("KB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"
