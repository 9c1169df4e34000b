"""`ludus data export`: a run's rollouts as a training set."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from ludus.cli.data import export_options as options
from ludus.cli.signals import interrupt_on_sigterm

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.data.export.exporting import Exported

INTERRUPTED = 130


def export(
    run: options.Run,
    to: options.To,
    output: options.Output,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    outcome: options.Outcome = "completed",
    min_reward: options.MinReward = None,
    max_reward: options.MaxReward = None,
    min_pass_rate: options.MinPassRate = None,
    max_pass_rate: options.MaxPassRate = None,
    min_length: options.MinLength = None,
    max_length: options.MaxLength = None,
    environment: options.Environment = None,
    stop_reason: options.StopReason = None,
    receipt: options.Receipt = None,
    reasoning: options.Reasoning = "keep",
    tokens: options.Tokens = False,
    shape: options.Shape = "messages",
    margin: options.Margin = 0.0,
    length_ratio: options.LengthRatio = None,
    advantage: options.Advantage = "z_score",
) -> None:
    """Write the rollouts of a run as a training set.

    Failed rollouts never enter one, and masked ones only if --outcome asks for them. dpo, kto, rm and nemo-preference
    take the best rollout of each task against its worst. The summary says how many rollouts were left out and why, and
    what the format has no place for.

    Example: ludus data export runs/first --to sft --min-reward 1 --output sft.jsonl
    """
    from ludus.cli.screen import safe_json
    from ludus.data.export.exporting import export as export_run
    from ludus.data.export.pairs import PairRule
    from ludus.data.export.registry import format_named
    from ludus.data.filters import Filters
    from ludus.errors import UserError

    if json_ and output == "-":
        raise UserError("--json and --output - both print to stdout", "Name a file with --output")
    filters = Filters(
        outcome=outcome,  # type: ignore[arg-type]
        reward=(min_reward, max_reward),
        pass_rate=(min_pass_rate, max_pass_rate),
        length=(min_length, max_length),
        environments=tuple(environment or ()),
        stop_reasons=tuple(stop_reason or ()),
        receipts=tuple(receipt or ()),
    )
    choices = format_named(to).checked_choices(reasoning=reasoning, tokens=tokens, shape=shape)
    made = _run(
        partial(
            export_run,
            run,
            to,
            output,
            filters=filters,
            choices=choices,
            pairs=PairRule(margin, length_ratio),
            advantage=advantage,
            overwrite=overwrite,
        ),
        output,
        quiet=json_,
    )
    if json_:
        print(safe_json(made.as_json()))
        return
    _show(made, to_stderr=output == "-")


def _run(work: Callable[..., Exported], output: str, *, quiet: bool) -> Exported:
    """Export with a line of progress. Ctrl-C and SIGTERM stop it."""
    from ludus.cli.progress import Display

    display = Display(quiet=quiet)
    interrupt_on_sigterm()
    try:
        return work(tick=_Progress(display, quiet=quiet).show)
    except KeyboardInterrupt:
        display.close()
        display.say(f"stopped: {output} was not made, and the run is unchanged")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        display.close()


class _Progress:
    """Shows how far the export is: from the first second on, a line that changes, or a line every few seconds."""

    def __init__(self, display: Display, *, quiet: bool) -> None:
        self._display, self._quiet = display, quiet
        self._next = time.perf_counter() + 1.0

    def show(self, share: float) -> None:
        """Show the share that is done, from 0 to 1."""
        from ludus.cli.progress import PLAIN_EVERY, REFRESH

        now = time.perf_counter()
        if self._quiet or now < self._next:
            return
        live = self._display.show_live(f"exporting: {share:.0%} done")
        self._next = now + (REFRESH if live else PLAIN_EVERY)


def _show(made: Exported, *, to_stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from ludus.cli.screen import stdout_console, text

    table = Table(title=f"exported as {made.format}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")

    def add(name: str, value: Any) -> None:
        table.add_row(text(name), text(value))

    add("rollouts read", f"{made.rollouts:,}")
    add("used", f"{made.used:,}")
    for reason, count in made.left_out.items():
        add("left out", f"{count:,}  {reason}")
    add("rows written", f"{made.rows:,}")
    for what, count in made.not_carried.items():
        add("not carried", f"{count:,}  {what}")
    if made.never_carried:
        add("no place for", ", ".join(made.never_carried))
    for name in made.outputs:
        add("written to", name)
    console = Console(stderr=True, highlight=False) if to_stderr else stdout_console()
    console.print(table)
