"""`ludus qualify`: can an environment's verifier be trusted? Prints a card and sets the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ludus.cli.commands import Argument, Exit, Option
from ludus.runtime.option_limits import MAX_INT64

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ludus_qualify.card import Card
    from ludus_qualify.rates import Rate

VERDICT_STYLES = dict.fromkeys(("unsound", "broken", "strict"), "bold red")
VERDICT_STYLES |= {"trusted": "bold green", "not shown": "bold yellow"}
MAX_TOOL_ERRORS = 3
STYLES = {"ok": "green", "failed": "bold red", "look": "bold yellow", "skipped": "yellow"}
OVER = "over its limit"


def qualify(
    environment: Annotated[str, Argument(metavar="ENV", help="Name or folder of an environment.")],
    input: Annotated[
        Path | None, Option("--input", "-i", help="Rows, as for ludus collect; default: example rows.")
    ] = None,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="Which dataset to use.")] = None,
    limit: Annotated[int, Option(min=1, max=MAX_INT64, help="Use only the first N rows.")] = 32,
    seed: Annotated[
        int, Option(min=-MAX_INT64, max=MAX_INT64, help="The seed of the run; each rollout gets one of its own.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="PART.KEY=VALUE", help="A setting of resources, agent or limits."),
    ] = None,
    max_exploit: Annotated[
        float | None, Option(help="The most a bad policy may earn; default: derived from guessing.")
    ] = None,
    min_oracle: Annotated[float, Option(min=0, max=1, help="The least that right answers must earn.")] = 0.99,
    max_false_positive: Annotated[
        float, Option(min=0, max=1, help="Share of wrong answers that may be accepted.")
    ] = 0.0,
    max_false_negative: Annotated[
        float | None, Option(min=0, max=1, help="Share of right answers that may be refused; default: any.")
    ] = None,
    pass_reward: Annotated[
        float | None,
        Option("--pass", help="For partial credit: rewards of at least this count as 1, others as 0."),
    ] = None,
    odd: Annotated[
        int, Option(min=0, max=1_000_000, help="How many odd answers to try; each must end in a verdict.")
    ] = 100,
    hooks: Annotated[
        Path | None, Option(help="A file with hooks, or its folder; default: qualify.py of the environment.")
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Test whether a verifier can be trusted.

    Bad policies and planted cheats must earn nothing, right answers must get their reward, and odd answers must end in
    a verdict. The exit code is 1 if a check fails.

    Example: ludus qualify mcqa --limit 100 --json

    With partial credit: ludus qualify ./my_game --pass 0.5
    """
    from ludus.cli.screen import prints_to_stderr, safe_json, stdout_console
    from ludus.runtime.settings import parse_assignments
    from ludus_qualify.rates import Thresholds
    from ludus_qualify.run import qualify as run

    thresholds = Thresholds(max_exploit, min_oracle, max_false_positive, max_false_negative, pass_reward)
    settings = parse_assignments(set_ or [])
    with prints_to_stderr(json_):
        card = run(
            environment,
            input=input,
            dataset=dataset,
            limit=limit,
            seed=seed,
            hooks=hooks,
            settings=settings,
            thresholds=thresholds,
            odd=odd,
        )
    if json_:
        print(safe_json(card.to_row()))
    else:
        show_card(stdout_console(), card)
    raise Exit(0 if card.passed else 1)


def show_card(console: Console, card: Card) -> None:
    """Print a card: figures, bad policies, checks, verdict."""
    from ludus.cli.screen import emit, show_block, text

    emit(
        console,
        text(f"{card.environment}: {card.rows} row{'' if card.rows == 1 else 's'}, {card.attempts} attempts", "bold"),
    )
    console.print(_figures(card))
    console.print(_policies(card))
    for why in dict.fromkeys(exploit.why for exploit in card.exploits if exploit.why):
        families = ", ".join(exploit.family for exploit in card.exploits if exploit.why == why)
        show_block(console, text(f"why {families} may earn this: {why}", "dim"))
    console.print(_checks(card))
    for line in _tool_errors(card):
        show_block(console, text(line, "yellow"))
    for warning in card.warnings:
        emit(console, text(f"warning: {warning}", "yellow"))
    emit(console, text(f"{card.environment} {_verdict(card)}", VERDICT_STYLES[card.verdict]))


def _tool_errors(card: Card) -> list[str]:
    """The exceptions of tools: each in right answers, and a count of those that bad policies provoked."""
    from ludus.collection.table import tool_errors

    lines = []
    in_right = [{**error, "count": error["in_right"]} for error in card.tool_errors if error["in_right"]]
    if in_right:
        shown = tool_errors(in_right)
        more = f"; {len(shown) - MAX_TOOL_ERRORS} more in --json" if len(shown) > MAX_TOOL_ERRORS else ""
        lines.append(f"tools raised exceptions in right answers: {'; '.join(shown[:MAX_TOOL_ERRORS])}{more}")
    provoked = [{**error, "count": error["count"] - error["in_right"]} for error in card.tool_errors]
    provoked = [error for error in provoked if error["count"]]
    if provoked:
        count = sum(error["count"] for error in provoked)
        most = max(provoked, key=lambda error: error["count"])
        times = "an exception" if count == 1 else f"{count} exceptions"
        first = f"{'' if len(provoked) == 1 else 'most often '}{tool_errors([most])[0]}"
        lines.append(f"wrong answers and bad policies made tools raise {times}: {first}")
    return lines


def _verdict(card: Card) -> str:
    """What the card shows, in short sentences."""
    rate = card.false_negative
    if card.verdict == "trusted":
        strict = f" It refuses {rate.wrong} of {rate.total} right answers in another form." if rate.wrong else ""
        unseen = f"A fault in fewer than {card.unseen:.0%} of all rows may go unseen."
        return f"can be trusted. Every check passed on {card.rows} rows. {unseen}{strict}"
    if card.verdict == "not shown":
        look = f" Look at this: {'; '.join(card.findings)}." if card.findings else ""
        skipped = f" Not tested: {'; '.join(card.not_shown)}" if card.not_shown else ""
        return f"{'may be unsound' if look else 'passed every check'}.{look}{skipped}"
    what = {"unsound": "unsound: it rewards wrong answers", "broken": "broken", "strict": "too strict"}
    return f"is {what[card.verdict]} (failed: {', '.join(card.failed)})"


def _figures(card: Card) -> Table:
    from ludus.cli.screen import one_line, text

    table = _table()
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    best = card.best_exploit
    exploit = "-"
    if best is not None:
        exploit = f"{best.reward:.3f} by {best.best}" if best.reward else "0.000: no bad policy earned anything"
    if best is not None and best.why and not best.excess:
        exploit += ", as expected"
    if card.chance:
        exploit += f" (guessing earns {card.chance:.3f})"
    table.add_row("best exploit", text(exploit))
    table.add_row("oracle", text("-" if card.oracle is None else f"{card.oracle:.3f}"))
    sources = (source if count == card.rows else f"{source} ({count})" for source, count in card.gold_from.items())
    if card.cheats.total:
        table.add_row("cheats", text(_rate(card.cheats, " attacks on the grader earned a reward")))
        table.add_row("oracles refused", text(_rate(card.oracles_failed, " right answers earned too little")))
    table.add_row("right answers from", text(", ".join(sources) or "-"))
    table.add_row("wrong answers accepted", text(_rate(card.false_positive, "")))
    table.add_row("strictness", text(_rate(card.false_negative, " right answers in another form refused")))
    table.add_row("odd answers", text(_rate(card.odd, " ended without a verdict")))
    if card.near_misses.total:
        table.add_row("near misses", text(_rate(card.near_misses, " earned the full reward")))
    if card.false_negative.wrong:
        table.add_row("", text(one_line(f"first: {card.false_negative.examples[0]}")))
    if card.thresholds.pass_reward is not None:
        table.add_row("counted as 1", text(f"a reward of {card.thresholds.pass_reward:g} or more passes"))
    return table


def _rate(rate: Rate, what: str) -> str:
    return "-" if rate.value is None else f"{rate.value:.3f} ({rate.wrong} of {rate.total}{what})"


def _policies(card: Card) -> Table:
    from ludus.cli.screen import text

    table = _table("bad policy")
    table.add_column("bad policy", overflow="fold", ratio=1)
    table.add_column("earns", justify="right", no_wrap=True)
    table.add_column("may earn", justify="right", no_wrap=True)
    if any(exploit.excess for exploit in card.exploits):
        table.add_column("", no_wrap=True)
    for exploit in card.exploits:
        style = "bold red" if exploit.excess else ""
        name = text(exploit.best if exploit.reward else exploit.family, style)
        over = [text(OVER, style)] if exploit.excess else []
        table.add_row(name, text(f"{exploit.reward:.3f}", style), f"{exploit.limit:.3f}", *over)
    return table


def _checks(card: Card) -> Table:
    from ludus.cli.screen import one_line, text

    table = _table("check")
    table.add_column("check", overflow="fold")
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    for check in card.checks:
        table.add_row(text(check.name), text(check.status, STYLES[check.status]), text(one_line(check.reason)))
    return table


def _table(header: str = "") -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, show_edge=False, show_header=bool(header), expand=bool(header))
