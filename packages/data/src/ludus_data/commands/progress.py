"""Helpers of the `ludus data` commands: a line of progress, and tables of named values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ludus_data.inputs import ReadingProgress, Tick

#: The exit code of a command that found something, such as bad rows. A mistake of the user is exit code 2.
FOUND = 1


@contextlib.contextmanager
def reading(what: str, *, quiet: bool) -> Iterator[Tick]:
    """Show the progress of reading.

    Ctrl-C and SIGTERM stop the reading; a partly written file is removed.
    """
    from ludus.cli.progress import Display
    from ludus.cli.signals import interrupt_on_sigterm

    display = Display(quiet=quiet)

    def tick(progress: ReadingProgress) -> None:
        display.show_share(what, progress.share, f"{progress.rows:,} rows, {progress.bytes / 1e6:,.0f} MB")

    interrupt_on_sigterm()
    try:
        yield tick
    finally:
        display.close()


def print_values(title: str, values: dict[str, object]) -> None:
    """Print a table of names and values on stdout."""
    from ludus.cli.screen import facts_table, stdout_console

    stdout_console().print(facts_table(title, values.items()))


def print_columns(title: str, columns: list[str], lines: list[list[str]]) -> None:
    """Print a table with a heading for each column on stdout; nothing without lines. Numbers stand to the right."""
    from rich.table import Table

    from ludus.cli.screen import one_line, stdout_console, text

    if not lines:
        return
    table = Table(title=text(title), title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*(text(one_line(cell)) for cell in line))
    stdout_console().print(table)
