"""`ludus verify`: score stored rollouts again, without a model, and report what changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Exit, Option
from ludus.cli.signals import INTERRUPTED, cancel_on_sigterm

if TYPE_CHECKING:
    from ludus.rescore.rescoring import Rescoring


def verify(
    file: Annotated[
        Path, Argument(metavar="FILE", help="A collection's folder, or JSONL: rollouts, or rows with a response.")
    ],
    environments: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="ENV", help="Name or folder, may repeat; default: each row's agent_ref."),
    ] = None,
    rows: Annotated[
        Path | None, Option("--rows", metavar="FILE", help="A dataset with the task's fields, joined by the prompt.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Write the rows with their new rewards (may be FILE).")
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="PART.KEY=VALUE", help="A setting of resources or limits.")
    ] = None,
    pass_: Annotated[
        float | None,
        Option("--pass", metavar="REWARD", help="The lowest reward that is a pass; default: the environment's."),
    ] = None,
    stale: Annotated[bool, Option("--stale", help="Score only rows whose verifier, task or response changed.")] = False,
    force: Annotated[bool, Option("--force", help="Score rows that name another environment than --env.")] = False,
    concurrency: Annotated[int, Option("--concurrency", "-c", min=1, max=65_536, help="Rows in flight.")] = 64,
    json_: Annotated[bool, Option("--json", help="Print the summary as JSON and nothing else.")] = False,
) -> None:
    """Score stored rollouts again.

    Any rows with a task's fields and a response can be scored too.

    No policy model is called; the environment's judge is, if it has one. Recorded tool calls run again on a fresh
    session. If the environment judges groups, all rows of a task form one group. Rollouts without their task's fields
    get them from the row of --rows with the same prompt. The exit code is 1 if a row failed.

    Example: ludus verify runs/first --env mcqa --set resources.grading_mode=lenient_boxed

    Of several environments: ludus verify runs/mixed --env ./bank --env ./wordle
    """
    from ludus.cli.screen import prints_to_stderr
    from ludus.errors import UserError
    from ludus.rescore.rescoring import Rescoring
    from ludus.runtime.settings import parse_assignments

    settings = parse_assignments(set_ or []) | ({"pass_reward": pass_} if pass_ is not None else {})
    if agents := [key for key in settings if key.partition(".")[0] == "agent"]:
        raise UserError(f"ludus verify runs no agent, so {agents[0]} would change nothing", "Leave it out")
    with prints_to_stderr(json_):
        options: dict[str, Any] = {"rows": rows, "output": output, "stale": stale, "force": force}
        rescoring = Rescoring(file, environments, settings=settings, concurrency=concurrency, **options)
    raise Exit(_run(rescoring, as_json=json_))


def _run(rescoring: Rescoring, as_json: bool) -> int:
    import asyncio

    from ludus.cli.progress import Display
    from ludus.cli.screen import prints_to_stderr, safe_json, stdout_console
    from ludus.cli.verify_view import show_changes, watch

    display = Display(quiet=as_json)
    try:
        with prints_to_stderr(as_json):
            asyncio.run(until_stopped(rescoring, watch(rescoring, display)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.close()
        display.say(_stopped_message(rescoring))
        return INTERRUPTED
    finally:
        display.close()
    if as_json:
        print(safe_json({**rescoring.changes.summary(), "output": str(rescoring.output) if rescoring.output else None}))
    else:
        show_changes(stdout_console(), rescoring)
    return 1 if rescoring.changes.counts["failed"] else 0


async def until_stopped(rescoring: Rescoring, watching: Any) -> None:
    """Score all rows until the end, or until Ctrl-C or SIGTERM."""
    import asyncio

    cancel_on_sigterm()
    watcher = asyncio.create_task(watching)
    try:
        await rescoring.run()
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


def _stopped_message(rescoring: Rescoring) -> str:
    """How many rows were scored before the stop, and the file that holds them."""
    rows, writer = rescoring.changes.rows, rescoring.writer
    if writer is None:
        return f"stopped after {rows:,} rows"
    if writer.draft == writer.path:
        return f"stopped: the first {rows:,} rows are in {writer.path}"
    return f"stopped: {writer.path} is unchanged, and the first {rows:,} rows are in {writer.draft}"
