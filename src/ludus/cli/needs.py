"""Prints what other people's environments need: one of them for `ludus doctor PATH`, or a list for `ludus envs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from ludus.cli.commands import Exit

if TYPE_CHECKING:
    from rich.console import Console

    from ludus.adapter import Listed, Need

#: How long a list may take before its progress is shown.
_QUIET_SECONDS = 1.0
#: Terminals with fewer columns get a few lines per environment instead of a table.
_TABLE_WIDTH = 110

#: The widths of the columns of names and states.
_NAMES, _STATE = 16, 7

_STATES = {True: ("ok", "green"), False: ("missing", "red"), None: ("maybe", "yellow")}


def doctor_of(path: str, json_: bool) -> None:
    """Print what the environment at a path needs. The exit status is 1 if something is missing."""
    from ludus.adapter import needs
    from ludus.cli.screen import safe_json, stdout_console

    folder_needs = needs(path)
    runs = all(need.met is not False for need in folder_needs)
    if json_:
        print(safe_json({"path": path, "runs": runs, "needs": [asdict(need) for need in folder_needs]}))
    else:
        _show_needs(stdout_console(), path, folder_needs)
    if not runs:
        raise Exit(1)


def _show_needs(console: Console, path: str, needs: list[Need]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ludus.cli.screen import emit, print_unbroken, text

    missing = sum(need.met is False for need in needs)
    emit(console, text(f"{path}: {f'{missing} missing' if missing else 'runs here'}", "bold"))
    for need in needs:
        state, style = _STATES[need.met]
        line = Table.grid(padding=(0, 2))
        line.add_column(no_wrap=True, min_width=_NAMES)
        line.add_column(no_wrap=True, min_width=_STATE)
        line.add_column(overflow="fold")
        line.add_row(Text.assemble("  ", text(need.name, "bold")), text(state, style), text(need.why))
        if console.is_terminal:
            console.print(line)
        else:
            print_unbroken(console, line)
        for command in need.commands:  # never broken: people copy them
            console.print(text(f"      {command}"), soft_wrap=True)


def list_environments(package: str, folder: str, json_: bool) -> None:
    """Print the environments in a folder, with what each needs and whether it runs here."""
    from ludus.adapter import listing
    from ludus.cli.screen import safe_json, stdout_console

    environments = _with_progress(listing(package, folder), folder)
    if json_:
        print(safe_json([{**asdict(environment), "runs": environment.runs} for environment in environments]))
        return
    console = stdout_console()
    if console.width >= _TABLE_WIDTH:
        _table(console, environments)
    else:
        _lines(console, environments)
    running = sum(environment.runs == "yes" for environment in environments)
    console.print(f"{running} of {len(environments)} run here. What one needs: ludus doctor PATH")


def _with_progress(environments: Iterable[Listed], folder: str) -> list[Listed]:
    """All of them. On a terminal a line counts them, once that takes longer than a second."""
    from ludus.cli.screen import clean

    started, shown, listed = time.monotonic(), False, []
    for environment in environments:
        listed.append(environment)
        if sys.stderr.isatty() and time.monotonic() - started > _QUIET_SECONDS:
            line = clean(f"{folder}: {len(listed)} read, {environment.name}")
            print(f"\r\x1b[2K{line[:78]}", end="", file=sys.stderr, flush=True)
            shown = True
    if shown:
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
    return listed


def _table(console: Console, environments: list[Listed]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ludus.cli.screen import text

    table = Table(box=SIMPLE_HEAD, show_edge=False, expand=True)
    table.add_column("server", style="bold", overflow="fold", max_width=40)
    table.add_column("domain")
    table.add_column("rows", justify="right")
    table.add_column("needs", max_width=30)
    table.add_column("runs here", ratio=1)
    for environment in environments:
        rows = "" if environment.rows is None else f"{environment.rows:,}"
        cells = (environment.name, environment.domain, rows, _names(environment))
        table.add_row(*map(text, cells), text(environment.runs, _style(environment)))
    console.print(table)


def _lines(console: Console, environments: list[Listed]) -> None:
    from ludus.cli.screen import emit, show_block, text

    for environment in environments:
        title = text(environment.name, "bold")
        emit(console, title.append_text(text(f"  {environment.domain}", "cyan")))
        if not environment.problem:
            rows = "no" if environment.rows is None else f"{environment.rows:,}"
            show_block(console, text(f"{rows} example rows; needs {_names(environment) or 'nothing more'}", "dim"))
        show_block(console, text(f"runs here: {environment.runs}", _style(environment)))


def _names(environment: Listed) -> str:
    return ", ".join(dict.fromkeys(need.name for need in environment.needs))


def _style(environment: Listed) -> str:
    return "green" if environment.runs == "yes" else "red" if environment.problem else "yellow"
