"""The terminal output of `ludus verify`: progress while it runs, then a summary of what changed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ludus.cli.progress import REFRESH, Display
from ludus.cli.screen import emit, number, one_line, reward_style, text
from ludus.collection.table import clock, pass_mark

if TYPE_CHECKING:
    from ludus.rescore.rescoring import Rescoring

_MEANINGS = {
    "unchanged": "the same reward",
    "changed": "another reward",
    "new": "newly scored",
    "failed": "no reward",
    "fresh": "nothing to do",
}


async def watch(rescoring: Rescoring, display: Display) -> None:
    """Show progress until cancelled: a live line on a terminal, a plain line every few seconds elsewhere."""
    while True:
        await asyncio.sleep(REFRESH)
        display.refresh(lambda: _bar(rescoring), lambda: ", ".join(_parts(rescoring)))
        display.warn_of_stall(time.perf_counter() - rescoring.last_change, _stall)


def _stall(idle: float) -> str:
    return f"no row was judged for {idle:.0f} s. To wait less: --set limits.verify=SECONDS"


def _parts(rescoring: Rescoring) -> list[str]:
    rows, counts = rescoring.changes.rows, rescoring.changes.counts
    seconds = max(time.perf_counter() - rescoring.started, 1e-9)
    share = rescoring.source.share if rescoring.source is not None else 0.0
    parts = [f"{rows:,} rows", f"{counts['changed']:,} changed", f"{counts['failed']:,} failed"]
    parts.append(f"{rows / seconds:,.0f} rows/s")
    parts.append(f"{clock(seconds / share - seconds)} left" if share else "- left")
    return parts


def _bar(rescoring: Rescoring) -> Table:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=rescoring.source.share if rescoring.source is not None else 0.0)
    grid.add_row(bar, Text(" · ".join(_parts(rescoring)), overflow="ellipsis", no_wrap=True))
    return grid


def show_changes(console: Console, rescoring: Rescoring) -> None:
    """Print the table of counts and the first changed and failed rows."""
    summary = rescoring.changes.summary()
    table = Table(
        title=f"{summary['rows']:,} row{'' if summary['rows'] == 1 else 's'}", show_header=False, title_justify="left"
    )
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, meaning in _MEANINGS.items():
        if summary[name] or name != "fresh":
            table.add_row(name, f"{summary[name]:,}", meaning)
    for kind, count in list(summary["failures"].items())[:5]:
        table.add_row(text(f"  {kind}"), f"{count:,}", "")
    if summary["masked"]:
        table.add_row("masked", f"{summary['masked']:,}", "scored, not fit to train on")
    if summary["mean_before"] is not None:
        table.add_row("mean reward", f"{summary['mean_before']:.3f} → {summary['mean_after']:.3f}", "of rows with both")
        passed = f"{summary['passed_before']:,} → {summary['passed_after']:,}"
        table.add_row("passed", passed, pass_mark(summary["pass_reward"]))
    if summary["duplicates"]:
        table.add_row("duplicates", f"{summary['duplicates']:,}", "duplicate lines of a rollout, unchanged")
    if summary["torn"]:
        table.add_row("torn", "1", "the last line is incomplete and left out")
    if summary["drift"]["rollouts"]:
        table.add_row("drifted", f"{summary['drift']['rollouts']:,}", "tools returned other outputs than recorded")
    console.print(table)
    _show_first_rows(console, rescoring)


def _show_first_rows(console: Console, rescoring: Rescoring) -> None:
    changes = rescoring.changes
    if changes.changes:
        table = Table(box=SIMPLE_HEAD, show_edge=False)
        for name in ("line", "before", "after"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("changed rollout", overflow="ellipsis", no_wrap=True)
        for change in changes.changes:
            after = text(number(change["after"]), reward_style(change["after"]))
            after.append(" (masked)" if change.get("mask") else "")
            rollout = text(one_line(str(change["rollout_id"])))
            table.add_row(text(change["line"]), text(number(change["before"])), after, rollout)
        console.print(table)
        if more := changes.counts["changed"] - len(changes.changes):
            emit(console, text(f"{more:,} more changed", "dim"))
    lines_of: dict[str, list[str]] = {}
    for failure in changes.failed:
        cause = f"{failure['stage']}: {failure['kind']}: {one_line(failure['cause'])}"
        lines_of.setdefault(cause, []).append(str(failure["line"]))
    for cause, lines in list(lines_of.items())[:5]:
        emit(console, text(f"line{'s' if len(lines) > 1 else ''} {', '.join(lines)}: {cause}", "red"))
    if changes.drifted:
        more = changes.drift_count - len(changes.drifted)
        names = ", ".join(one_line(str(name)) for name in changes.drifted) + (f" and {more:,} more" if more else "")
        emit(console, text(f"environment drift in {names}", "yellow"))
    if rescoring.output is not None:
        metrics = f" and {rescoring.output.with_name(rescoring.metrics.name)}" if rescoring.metrics is not None else ""
        emit(console, text(f"written to {rescoring.output}{metrics}", "dim"))
