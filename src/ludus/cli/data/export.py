"""`ludus data export`: a run's rollouts as a training set."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ludus.cli.signals import interrupt_on_sigterm

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.data.export.exporting import Exported

INTERRUPTED = 130
_WHICH, _HOW = "Which rollouts", "How rows are written"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A collection's folder or a file of rollouts.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="sft, dpo, kto, rm, grpo, verl, openai, nemo, nemo-preference, nemo-customizer, atif, hf or csv.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PATH", help="The file to make; a folder for hf; - for stdout.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export of that name.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    outcome: Annotated[
        str,
        typer.Option(metavar="OUTCOME", help="completed, masked or any. Failed ones never.", rich_help_panel=_WHICH),
    ] = "completed",
    min_reward: Annotated[float | None, typer.Option(help="The least reward.", rich_help_panel=_WHICH)] = None,
    max_reward: Annotated[float | None, typer.Option(help="The greatest reward.", rich_help_panel=_WHICH)] = None,
    min_pass_rate: Annotated[
        float | None, typer.Option(help="Only tasks that pass at least this often, 0 to 1.", rich_help_panel=_WHICH)
    ] = None,
    max_pass_rate: Annotated[
        float | None, typer.Option(help="Only tasks that pass at most this often, 0 to 1.", rich_help_panel=_WHICH)
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(help="The fewest characters that the model wrote.", rich_help_panel=_WHICH)
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="The most characters that the model wrote.", rich_help_panel=_WHICH)
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option(help="Only this environment; may be repeated.", rich_help_panel=_WHICH)
    ] = None,
    stop_reason: Annotated[
        list[str] | None, typer.Option(help="Only this stop reason; may be repeated.", rich_help_panel=_WHICH)
    ] = None,
    receipt: Annotated[
        list[str] | None,
        typer.Option(
            help="Only receipts that begin so; the first 12 characters name the verifier.", rich_help_panel=_WHICH
        ),
    ] = None,
    reasoning: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="keep (as reasoning_content), tags (<think> in the text) or drop.",
            rich_help_panel=_HOW,
        ),
    ] = "keep",
    tokens: Annotated[
        bool, typer.Option("--tokens", help="sft, grpo: recorded token ids with loss masks.", rich_help_panel=_HOW)
    ] = False,
    shape: Annotated[
        str,
        typer.Option(
            metavar="SHAPE", help="sft: messages, or completion (prompt and completion apart).", rich_help_panel=_HOW
        ),
    ] = "messages",
    margin: Annotated[
        float,
        typer.Option(
            help="Pairs: the least difference of the two rewards. Equal rewards never make a pair.",
            rich_help_panel=_HOW,
        ),
    ] = 0.0,
    length_ratio: Annotated[
        float | None,
        typer.Option(
            help="Pairs: the longer answer has at most this many times the characters of the shorter, and of equal "
            "rewards the closest lengths are paired.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    advantage: Annotated[
        str, typer.Option(metavar="NAME", help="grpo: z_score, group_mean or leave_one_out.", rich_help_panel=_HOW)
    ] = "z_score",
) -> None:
    """Write the rollouts of a run as a training set.

    Failed rollouts never enter one, and masked ones only if --outcome asks for them. dpo, kto, rm and nemo-preference
    take the best rollout of each task against its worst. The summary says how many rollouts were left out and why, and
    what the format has no place for.

    Example: ludus data export runs/first --to sft --min-reward 1 --output sft.jsonl
    """
    from ludus.cli.progress import Display
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
    display = Display(quiet=json_)
    interrupt_on_sigterm()
    try:
        made = export_run(
            run,
            to,
            output,
            filters=filters,
            choices=choices,
            pairs=PairRule(margin, length_ratio),
            advantage=advantage,
            overwrite=overwrite,
            tick=_Progress(display, quiet=json_).show,
        )
    except KeyboardInterrupt:
        display.close()
        display.say(f"stopped: {output} was not made, and the run is unchanged")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        display.close()
    if json_:
        print(safe_json(made.as_json()))
        return
    _show(made, to_stderr=output == "-")


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
