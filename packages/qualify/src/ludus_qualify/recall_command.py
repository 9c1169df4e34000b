"""`ludus recall`: which stored rewards would a fixed verifier change, and which policies were trained on them?"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Exit, Option

if TYPE_CHECKING:
    from rich.console import Console

    from ludus_qualify.recall import Recall

#: How many rows of the dataset, changed rollouts and failures are shown. `--json` has more.
MAX_SHOWN = 10


def recall(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Collections' folders, or files of rollouts.")],
    environment: Annotated[str, Option("--env", "-e", metavar="ENV", help="The environment with the fixed verifier.")],
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="The folder for the corrected runs and changes.jsonl."),
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="PART.KEY=VALUE", help="A setting of resources or limits.")
    ] = None,
    all_: Annotated[
        bool, Option("--all", help="Also score rollouts with a valid receipt, after a judge or a data file changed.")
    ] = False,
    concurrency: Annotated[int, Option("--concurrency", "-c", min=1, max=65_536, help="Rows in flight.")] = 64,
    json_: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Find rewards that a fixed verifier would change.

    The rollouts are counted by policy version, dataset row and run.

    Nothing is changed in the runs. Rollouts of other environments are left alone. The exit code is 1 if the new
    verifier cannot judge a rollout, and 2 if no rollout is of this environment.

    Example: ludus recall --env ./bank runs/week-1 runs/week-2 --output recalled
    """
    from ludus.cli.screen import prints_to_stderr, safe_json, stdout_console
    from ludus.runtime.settings import parse_assignments
    from ludus_qualify.recall import Recall

    settings = parse_assignments(set_ or [])
    with prints_to_stderr(json_):
        options: dict[str, Any] = {"output": output, "settings": settings, "all_rows": all_}
        recalled = Recall(runs, environment, concurrency=concurrency, **options)
    if not _run(recalled, as_json=json_):
        raise Exit(130)
    if json_:
        print(safe_json(recalled.summary()))
    else:
        show_recall(stdout_console(), recalled)
    raise Exit(1 if recalled.total.findings["failed"] else 0)


def _run(recalled: Recall, *, as_json: bool) -> bool:
    """Score every run. Returns false if the user stopped it."""
    import asyncio

    from ludus.cli.progress import Display
    from ludus.cli.screen import prints_to_stderr
    from ludus.cli.verify import until_stopped
    from ludus.cli.verify_view import watch

    display = Display(quiet=as_json)
    try:
        with prints_to_stderr(as_json), contextlib.closing(recalled.rescorings()) as rescorings:
            for rescoring in rescorings:
                asyncio.run(until_stopped(rescoring, watch(rescoring, display)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.close()
        display.say(
            "stopped: the runs are unchanged" + (f", and {recalled.output} is incomplete" if recalled.output else "")
        )
        return False
    finally:
        display.close()
    return True


def show_recall(console: Console, recalled: Recall) -> None:
    """Print the findings: all, by policy version, by run, and the first rows of the dataset."""
    from rich.table import Table

    from ludus.cli.screen import emit, one_line, text
    from ludus_qualify.recalled import FINDINGS

    summary = recalled.summary()
    table = Table(title=f"{summary['rollouts']:,} rollouts", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for name, meaning in FINDINGS.items():
        if summary[name] or name in ("wrong", "failed"):
            table.add_row(name.replace("_", " "), f"{summary[name]:,}", meaning)
    console.print(table)
    title = "wrong rewards that each policy version was trained on"
    _show_counts(console, title, "policy version", _policies(summary))
    _show_counts(console, "by run", "run", [(run["run"], run) for run in summary["runs"]])
    rows = [(row["task_id"], row) for row in summary["dataset_rows"][:MAX_SHOWN]]
    if rows:
        more = summary["dataset_rows_changed"] - len(rows)
        title = "by row of the dataset" + (f" ({more:,} more)" if more else "")
        _show_counts(console, title, "task", rows, ("wrong", "newly_masked", "was_masked", "drifted"))
    for failure in summary["failures"][:MAX_SHOWN]:
        where, cause = f"{failure['run']}, line {failure['line']}", one_line(str(failure["cause"]))
        emit(console, text(f"{where}: {failure['stage']}: {failure['kind']}: {cause}", "red"))
    for run in summary["runs"]:
        if run["corrected"]:
            emit(console, text(f"corrected: {run['corrected']}", "dim"))
    if recalled.output is not None:
        emit(console, text(f"every changed rollout: {recalled.output / 'changes.jsonl'}", "dim"))


def _policies(summary: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (policy["policy_version"] or f"{policy['model'] or 'a model'} (no version recorded)", policy)
        for policy in summary["policies"]
    ]


def _show_counts(
    console: Console,
    title: str,
    first: str,
    rows: list[tuple[str, dict[str, Any]]],
    columns: tuple[str, ...] = ("trained_on", "wrong", "newly_masked", "was_masked", "drifted", "failed"),
) -> None:
    """Print a table of counts; on a narrow terminal, a line for each row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ludus.cli.screen import emit, fits, one_line, text

    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column(first.replace(" ", "\n"))
    for name in columns:
        table.add_column(name.replace("_", "\n"), justify="right")
    for name, counts in rows:
        table.add_row(text(one_line(name)), *(f"{counts[column]:,}" for column in columns))
    if fits(console, table):
        console.print(table)
        return
    emit(console, text(title, "italic"))
    for name, counts in rows:
        shown = ", ".join(f"{counts[column]:,} {column.replace('_', ' ')}" for column in columns)
        emit(console, text(f"{first} {one_line(name)}: {shown}"))
