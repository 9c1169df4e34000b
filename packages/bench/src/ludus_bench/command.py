"""`ludus bench`: rollouts a second with a stub model, what each costs, and what limits them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from ludus.cli.commands import Argument, Exit, Option
from ludus.runtime.option_limits import MAX_COUNT, MAX_WORKERS


def bench(
    environment: Annotated[str, Argument(metavar="ENV", help="Name or folder of an environment.")],
    in_flight: Annotated[
        str, Option("--in-flight", "-c", metavar="N,N,...", help="Rollouts in flight, one point each.")
    ] = "1k,4k,16k,65k",
    rollouts: Annotated[
        int | None, Option(min=1, max=MAX_COUNT, help="Rollouts of a point; default: 2 to 8 for each in flight.")
    ] = None,
    workers: Annotated[
        int | None,
        Option("--workers", "-w", min=1, max=MAX_WORKERS, help="Processes; default: 1, more if files demand it."),
    ] = None,
    ray: Annotated[str | None, Option(metavar="ADDRESS|local", help="Play rollouts on a Ray cluster.")] = None,
    delay: Annotated[
        str, Option(metavar="SECONDS", help="Of each model call: 1, 0.5..2, exp:1 or lognormal:1,0.5.")
    ] = "1",
    turns: Annotated[int, Option(min=0, max=10_000, help="Turns with tool calls before the answer.")] = 1,
    http: Annotated[
        bool, Option("--http/--no-http", help="A stub server in its own process, or a stub in each worker.")
    ] = True,
    stubs: Annotated[
        int | None, Option(min=1, max=MAX_WORKERS, help="Stub servers; default: one for 16,384 in flight.")
    ] = None,
    input: Annotated[Path | None, Option("--input", "-i", help="Rows as JSONL; default: example rows.")] = None,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="Which dataset to use.")] = None,
    set_: Annotated[list[str] | None, Option("--set", metavar="PART.KEY=VALUE", help="A setting.")] = None,
    plot: Annotated[
        Path | None, Option(metavar="FILE", help="Draw the curves into a .png or .svg (extra: plot).")
    ] = None,
    output: Annotated[Path | None, Option("--output", "-o", metavar="FILE", help="Write the JSON here.")] = None,
    json_: Annotated[bool, Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """Measure rollouts a second with a stub model.

    Each point has its times, CPU, memory and waiting, and names the first bottleneck.

    Example: ludus bench mcqa --in-flight 1k,4k,16k --workers 2 --delay 1 --plot bench.png

    Without HTTP: ludus bench mcqa --in-flight 1000 --no-http --delay 0
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import prints_to_stderr, safe_json, stdout_console
    from ludus.errors import UserError
    from ludus.runtime.settings import parse_assignments
    from ludus.store.drafts import write_whole
    from ludus.store.run import indented_json
    from ludus_bench.bench import Bench
    from ludus_bench.plots import plot_format, write_curves
    from ludus_bench.profile.figures import new_figure
    from ludus_bench.table import show_bench

    if ray is not None and not http:
        raise UserError("--no-http and --ray cannot be used together", "Leave one of them out")
    if plot is not None:  # before minutes of measuring
        plot_format(plot)
        new_figure("")
    display = Display()
    try:
        with prints_to_stderr(json_):
            measured = Bench(
                environment,
                _parse_in_flight(in_flight),
                rollouts,
                workers,
                ray,
                http,
                stubs,
                delay,
                turns,
                str(input) if input is not None else None,
                dataset,
                parse_assignments(set_ or []),
                tell=display.show_live,
            ).run()
    finally:
        display.close()
    if output is not None:
        write_whole(output, indented_json(measured) + b"\n")
    if plot is not None and measured["points"]:
        write_curves(measured, plot)
    if json_:
        print(safe_json(measured))
    else:
        show_bench(stdout_console(), measured)
    raise Exit(_exit_code(measured))


def _exit_code(measured: dict[str, Any]) -> int:
    """1 if a rollout failed or a point was left out."""
    return 1 if measured["left_out"] or any(point["failed"] for point in measured["points"]) else 0


def _parse_in_flight(text: str) -> list[int]:
    from ludus.errors import UserError

    numbers = []
    for part in text.split(","):
        number = re.fullmatch(r"\s*([0-9]{1,7})(k?)\s*", part)
        value = int(number[1]) * (1000 if number[2] else 1) if number else 0
        if not 1 <= value <= MAX_COUNT:
            cause = f"--in-flight has {part[:20]!r}; that is not a number from 1 to {MAX_COUNT:,}"
            raise UserError(cause, "Example: --in-flight 1k,4k,16k")
        numbers.append(value)
    return numbers
