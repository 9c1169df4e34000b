"""`ludus credit`: which turn of a rollout earned its reward, and which one lost it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Exit, Option
from ludus.cli.signals import cancel_on_sigterm
from ludus.runtime.option_limits import MAX_INT64

if TYPE_CHECKING:
    from rich.console import Console

    from ludus.cli.progress import Display
    from ludus.collection.collection import Collection
    from ludus.collection.collector import Collector

INTERRUPTED = 130


def credit(
    run: Annotated[Path, Argument(metavar="RUN", help="A collection's folder, or a file of rollouts.")],
    environment: Annotated[
        str | None, Option("--env", "-e", metavar="ENV", help="The environment; default: as the rollouts say.")
    ] = None,
    branches: Annotated[int, Option("--branches", "-b", min=1, max=65_536, help="Continuations from each turn.")] = 4,
    model: Annotated[
        str | None, Option("--model", "-m", help="The policy that continues; default: the run's own model.")
    ] = None,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="Where to write; default: the folder credit in RUN."),
    ] = None,
    limit: Annotated[int | None, Option(min=1, max=MAX_INT64, help="Credit the first N rollouts.")] = None,
    concurrency: Annotated[
        int | None, Option("--concurrency", "-c", min=1, max=65_536, help="Continuations in flight.")
    ] = None,
    seed: Annotated[int, Option(help="The seed of the continuations.")] = 0,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="PART.KEY=VALUE", help="A setting, such as model.temperature.")
    ] = None,
    plan: Annotated[bool, Option("--plan", help="Say what it would cost, and stop.")] = False,
    json_: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Estimate what every turn was worth.

    Each rollout is continued several times from each of its turns.

    The credited rollouts are written to a folder of their own, with the estimates as turn_rewards. The run is not
    changed. Continuations are cached: an interrupted call continues, and a second call plays nothing. The exit code is
    1 if a rollout could not be credited.

    Example: ludus credit runs/first --env ./corridor --branches 4

    The cost, before you spend it: ludus credit runs/first --env ./corridor --plan
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import prints_to_stderr, safe_json, stdout_console
    from ludus.runtime.settings import parse_assignments
    from ludus_credit.crediting import Crediting

    options: dict[str, Any] = {"model": model, "branches": branches, "output": output, "limit": limit, "seed": seed}
    with prints_to_stderr(json_):
        crediting = Crediting(
            run, environment, concurrency=concurrency, settings=parse_assignments(set_ or []), **options
        )
        planned = crediting.plan()
    if plan:
        if json_:
            print(safe_json(planned))
        else:
            stdout_console().print(_cost_line(planned), markup=False, highlight=False, soft_wrap=True)
        return
    display = Display(quiet=json_)
    display.say(_cost_line(planned))
    if (collection := crediting.collection()) is not None and not _play(collection, display, as_json=json_):
        raise Exit(INTERRUPTED)
    summary = crediting.write()
    if json_:
        print(safe_json(summary))
    else:
        show_credit(stdout_console(), summary)
    raise Exit(1 if summary["rollouts"]["without_credit"] else 0)


def _play(collection: Collection, display: Display, *, as_json: bool) -> bool:
    """Play the continuations that are missing. Returns false if the user stopped it."""
    import asyncio

    from ludus.cli.screen import prints_to_stderr
    from ludus.runtime.running import run

    async def until_stopped(collector: Collector) -> None:
        cancel_on_sigterm()
        await collection.run(collector, display.watch)

    try:
        with prints_to_stderr(as_json):
            run(until_stopped(collection.prepare(tick=display.reading)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.close()
        display.say("stopped: finished continuations are cached. The same command continues from here")
        return False
    finally:
        display.close()
    return True


def _cost_line(plan: dict[str, Any]) -> str:
    """What is planned and what it may cost, as a sentence."""
    counts, estimate = plan["continuations"], plan["estimate"]
    what = f"{plan['turns']:,} turns of {plan['rollouts']['to_credit']:,} rollouts, {plan['branches']} branches each"
    cached = f"{counts['needed']:,} continuations, {counts['cached']:,} of them cached"
    if not estimate["continuations"]:
        return f"{what}: {cached}. This costs no model calls"
    return f"{what}: {cached}. The other {estimate['continuations']:,} take about {_amount(estimate)}"


def _amount(cost: dict[str, Any]) -> str:
    """Model calls and tokens in words."""
    calls = f"{cost['model_calls']:,} model calls"
    if cost["input_tokens"] is None or cost["output_tokens"] is None:
        return f"{calls} (their tokens are not recorded)"
    return f"{calls}, {cost['input_tokens']:,} input and {cost['output_tokens']:,} output tokens"


def show_credit(console: Console, summary: dict[str, Any]) -> None:
    """Print the credited rollouts, the turns with the lowest credit, and the cost."""
    from rich.table import Table

    from ludus.cli.screen import emit, one_line, text

    table = Table(title="turns with the lowest credit", title_justify="left")
    for name in ("rollout", "turn", "credit", "95 % interval"):
        table.add_column(name, justify="left" if name == "rollout" else "right")
    for turn in summary["lowest_credit"]:
        interval = turn["interval"]
        shown = f"{interval[0]:+.2f} to {interval[1]:+.2f}" if interval is not None else "unknown"
        table.add_row(text(one_line(turn["rollout_id"])), str(turn["turn"]), f"{turn['credit']:+.2f}", shown)
    if summary["lowest_credit"]:
        console.print(table)
    rollouts, played, spent = summary["rollouts"], summary["continuations"], summary["cost"]["spent"]
    kinds = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in rollouts.items() if count)
    emit(console, text(f"rollouts: {kinds or 'none'}"))
    kinds = ", ".join(f"{played[kind]:,} {kind}" for kind in ("completed", "masked", "failed") if played[kind])
    emit(console, text(f"continuations: {kinds or 'none'}"))
    for kind, count in summary["failed_attempts"].items():
        emit(console, text(f"failed attempts: {count:,} {one_line(kind)}", "red"))
    for rollout in summary["first_without_credit"]:
        emit(console, text(f"no credit for {one_line(rollout['rollout_id'])}: {one_line(rollout['why'])}", "red"))
    emit(console, text(f"spent: {spent['continuations']:,} continuations, {_amount(spent)}"))
    emit(console, text(f"credited rollouts: {Path(summary['output']) / 'rollouts.jsonl'}", "dim"))
