"""`ludus data export`: a run's rollouts as a training set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ludus.cli.commands import Exit
from ludus.cli.signals import INTERRUPTED, interrupt_on_sigterm
from ludus_data.commands import export_options as options

if TYPE_CHECKING:
    from ludus_data.export.exporting import Exported


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

    Failed rollouts are never exported, masked ones only if --outcome asks for them. dpo, kto, rm and nemo-preference
    pair the best rollout of each task with its worst. The summary counts the rollouts that were left out, with reasons,
    and lists what the format cannot hold.

    Example: ludus data export runs/first --to sft --min-reward 1 --output sft.jsonl
    """
    from ludus.cli.screen import safe_json
    from ludus.errors import UserError
    from ludus_data.export.exporting import export as export_run
    from ludus_data.export.pairs import PairRule
    from ludus_data.export.registry import format_named
    from ludus_data.filters import Filters

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
    exported = _run(
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
        print(safe_json(exported.as_json()))
        return
    _show(exported, to_stderr=output == "-")


def _run(work: Callable[..., Exported], output: str, *, quiet: bool) -> Exported:
    """Export with a line of progress. Ctrl-C and SIGTERM stop it."""
    from ludus.cli.progress import Display

    display = Display(quiet=quiet)
    interrupt_on_sigterm()
    try:
        return work(tick=lambda share: display.show_share("exporting", share))
    except KeyboardInterrupt:
        display.close()
        display.say(f"stopped: {output} was not written, and the run is unchanged")
        raise Exit(INTERRUPTED) from None
    finally:
        display.close()


def _show(exported: Exported, *, to_stderr: bool) -> None:
    from rich.console import Console

    from ludus.cli.screen import facts_table, stdout_console
    from ludus.store.verifiers import verifier_warnings

    facts: list[tuple[str, object]] = [("rollouts read", exported.rollouts), ("used", exported.used)]
    facts += [("left out", f"{count:,}  {reason}") for reason, count in exported.left_out.items()]
    facts.append(("rows written", exported.rows))
    facts += [("not carried", f"{count:,}  {what}") for what, count in exported.not_carried.items()]
    if exported.never_carried:
        facts.append(("never in this format", ", ".join(exported.never_carried)))
    facts += [("verifiers", sentence) for sentence in verifier_warnings(exported.several_verifiers)]
    facts += [("written to", name) for name in exported.outputs]
    console = Console(stderr=True, highlight=False) if to_stderr else stdout_console()
    console.print(facts_table(f"exported as {exported.format}", facts))
