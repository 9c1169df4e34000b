"""The figures of one run as text: outcomes, rewards, pass@k, time by stage, failures, tools."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ludus.cli.screen import number, one_line, text, whole

WIDTH = 40
_MOST = 12


def figures(run: dict[str, Any]) -> RenderableType:
    """Everything about a run that fits a page."""
    return Group(*_head(run), *_rewards(run), *_bars(run), *_lists(run))


def _head(run: dict[str, Any]) -> list[RenderableType]:
    counts, tokens = run["counts"], run["tokens"]
    names = ("dispatched", "completed", "failed", "masked", "ended_early", "retried")
    line = ", ".join(
        f"{counts[name]:,} {name.replace('_', ' ')}" for name in names if counts[name] or name != "ended_early"
    )
    environments = ", ".join(run["environments"])
    head = [text(one_line(f"{environments} with {run['model']}"), "bold"), text(line)]
    index, warnings = run["index"], run["warnings"]
    if index["facts"] < index["bytes"]:
        head.append(text(f"indexing: {index['facts'] / index['bytes']:.0%}", "yellow"))
    if run["bad_lines"]["total"]:
        head.append(text(f"{run['bad_lines']['total']:,} lines cannot be read", "red"))
    head += [text(f"warning: {one_line(str(warning))}", "yellow") for warning in warnings[:5]]
    if tokens["input"] is None and tokens["output"] is None:
        return [*head, text("tokens: not recorded")]
    return [*head, text(f"tokens: {whole(tokens['input'])} read, {whole(tokens['output'])} written")]


def _rewards(run: dict[str, Any]) -> list[RenderableType]:
    reward, histogram = run["reward"], run["histogram"]
    interval = f" (95 % interval {number(reward['ci95'][0])} to {number(reward['ci95'][1])})" if reward["ci95"] else ""
    passes = ", ".join(f"pass@{k} {value:.3f}" for k, value in run["pass@k"].items())
    lines: list[RenderableType] = [_title("rewards"), text(f"mean {number(reward['mean'])}{interval}  {passes}")]
    counts = histogram["counts"]
    for ends, count in zip(histogram["ranges"], counts, strict=True):
        if count:
            rewards = " to ".join(dict.fromkeys(f"{end:.3g}" for end in ends))
            lines.append(_bar(rewards, count, max(counts), f"{count:,}"))
    return lines


def _bars(run: dict[str, Any]) -> list[RenderableType]:
    stages = run["stages"]
    if not stages:
        return []
    total = sum(stage["seconds"] for stage in stages) or 1.0
    lines = [
        _bar(stage["stage"], stage["seconds"], total, f"{stage['seconds']:,.2f} s, {stage['seconds'] / total:.0%}")
        for stage in stages
    ]
    return [_title("time by stage"), *lines]


def _lists(run: dict[str, Any]) -> list[RenderableType]:
    failures = [
        (f"{failure['stage']}/{failure['kind']}", failure["count"], failure["cause"]) for failure in run["failures"]
    ]
    tools = [(tool["name"], tool["calls"], f"{tool['errors']:,} errors") for tool in run["tools"]]
    ends = [(reason["name"], reason["count"], "") for reason in run["stop_reasons"]]
    masks = [(reason["name"], reason["count"], "") for reason in run["masks"]]
    values = [
        (value["name"], number(value["mean"]), f"{number(value['low'])} to {number(value['high'])}")
        for value in (*run["components"], *run["values"])
    ]
    lines: list[RenderableType] = []
    for title, rows in (
        ("failures", failures),
        ("tools", tools),
        ("stopped because", ends),
        ("masked because", masks),
        ("values of verdicts", values),
    ):
        if rows:
            lines += [_title(title), _listed(rows)]
    return lines


def _listed(rows: list[tuple[Any, Any, Any]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, max_width=40)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for name, count, about in rows[:_MOST]:
        shown = f"{count:,}" if isinstance(count, int) else str(count)
        table.add_row(text(one_line(str(name))), text(shown), text(one_line(str(about)), "dim"))
    return table


def _title(name: str) -> Text:
    return text(f"\n{name}", "bold")


def _bar(name: str, value: float, most: float, said: str) -> Text:
    return text(f"{one_line(name):<16.16} {'█' * round(WIDTH * value / most if most else 0):<{WIDTH}} {said}")
