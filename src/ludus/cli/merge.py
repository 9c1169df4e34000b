"""`ludus merge`: join the shards of a collection into one run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.signals import interrupt_on_sigterm

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.collection.merging import Merged

INTERRUPTED = 130


def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of the shards.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to make.")],
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept missing shards, and shards that were stopped early.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
) -> None:
    """Join the runs of ludus collect --shard into one run, with the metrics of all rollouts.

    The shards stay as they are. A duplicated line counts once. The folder appears when the run in it is complete.

    Example: ludus merge runs/shard-* --output runs/all
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import safe_json
    from ludus.collection.merging import merge as merge_runs

    display = Display(quiet=json_)
    interrupt_on_sigterm()
    try:
        merged = merge_runs(runs, output, partial=partial, tick=_Progress(display, quiet=json_).show)
    except KeyboardInterrupt:
        display.close()
        display.say(f"stopped: {output} was not made, and the shards are unchanged")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        display.close()
    if json_:
        print(safe_json(merged.as_json()))
        return
    _show(merged, display)


class _Progress:
    """Shows how far the merge is: from the first second on, a line that changes, or a line every few seconds."""

    def __init__(self, display: Display, *, quiet: bool) -> None:
        self._display, self._quiet = display, quiet
        self._began = time.perf_counter()
        self._next = self._began + 1.0

    def show(self, share: float) -> None:
        """Show the share that is done, from 0 to 1."""
        from ludus.cli.progress import PLAIN_EVERY, REFRESH
        from ludus.collection.table import clock

        now = time.perf_counter()
        if self._quiet or now < self._next:
            return
        left = clock((now - self._began) / share - (now - self._began)) if share else "-"
        live = self._display.show_live(f"merging: {share:.0%} done, {left} left")
        self._next = now + (REFRESH if live else PLAIN_EVERY)


def _show(merged: Merged, display: Display) -> None:
    from rich.table import Table

    from ludus.cli.screen import stdout_console, text

    if merged.missing_shards:
        named = ", ".join(merged.missing_shards[:10]) + (", ..." if len(merged.missing_shards) > 10 else "")
        count = len(merged.missing_shards)
        display.say(f"warning: {count:,} {'shard is' if count == 1 else 'shards are'} missing: {named}")
    if merged.missing_rollouts:
        display.say(f"warning: the shards lack {merged.missing_rollouts:,} of their rollouts")
    table = Table(title=f"{merged.shards:,} shards", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, count in merged.counts.items():
        table.add_row(text(name), f"{count:,}")
    for name, count in (("duplicated lines left out", merged.duplicates), ("torn lines left out", merged.torn)):
        if count:
            table.add_row(name, f"{count:,}")
    if merged.mean_reward is not None:
        table.add_row("mean reward", f"{merged.mean_reward:.3f}")
    table.add_row("folder", text(merged.output))
    stdout_console().print(table)
