"""`ludus collect`: run a model in an environment and write verified rollouts to files."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Exit, Option
from ludus.cli.option_fields import takes_options
from ludus.cli.signals import cancel_on_sigterm
from ludus.collection.options import Options, PlayOptions, RowOptions

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.collection.collection import Collection, Watcher
    from ludus.collection.collector import Collector
    from ludus.environment import Environment

INTERRUPTED = 130
#: How many rollouts are read to find the most common mask reason.
MASK_SAMPLE = 1000


@takes_options
def collect(
    environment: Annotated[
        str | None, Argument(metavar="ENV", help="Name or folder; default: each row's agent_ref.")
    ] = None,
    env: Annotated[
        list[str] | None,
        Option(
            "--env",
            "-e",
            metavar="ENV",
            help="An environment that rows may name; repeat it to mix several.",
            panel=RowOptions.title,
        ),
    ] = None,
    *,
    pass_: Annotated[
        float | None,
        Option(
            "--pass",
            metavar="REWARD",
            help="The lowest reward that is a pass; default: the environment's.",
            panel=PlayOptions.title,
        ),
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print the metrics as JSON and nothing else.")] = False,
    **values: Any,
) -> None:
    """Collect verified rollouts.

    Example: ludus collect mcqa --model local --repeats 4 --output runs/first

    Mix environments: ludus collect --env ./bank --env ./wordle --set bank.agent.max_steps=4 --model local

    With weights: ludus collect --env ./bank --env ./wordle --mix bank=0.7,wordle=0.3 --limit 1000

    Cut every recorded rollout after two model calls, and continue each one eight times:
    ludus collect workplace_assistant --branch runs/first/rollouts.jsonl --turn 2 --repeats 8

    Rows without prompts: ludus collect mcqa --input hf:OWNER/NAME:test --prompt 'Question: {question}'

    Over-sample for training: ludus collect mcqa --model openai:NAME --repeats 8 --enough 6 --group-deadline 600

    Break it on purpose: ludus collect ./quiz --model openai:NAME --chaos seed=7,model_500=5%,tool_hang=1%

    Use four processes, if verdicts or tools keep one core busy: ludus collect mcqa --model local --workers 4

    On a Ray cluster with eight workers: ludus collect mcqa --model URL#NAME --ray 10.0.0.1:6379 --workers 8

    Charts and metrics: ludus collect mcqa --model local --log-to tensorboard --metrics-port 9464 --otel

    Split a collection among machines: ludus collect mcqa --model local --shard 2/8 --output runs/shard-2
    """
    from ludus.cli.screen import prints_to_stderr
    from ludus.collection.collection import Collection
    from ludus.environment import Environment
    from ludus.errors import UserError

    if pass_ is not None:
        values["settings"] = {**(values.get("settings") or {}), "pass_reward": pass_}
    options = Options(**values)
    if environment is not None and env:
        all_named = " ".join(f"--env {name}" for name in (environment, *env))
        raise UserError(f"{environment} is named without --env and {env[0]} with it", f"To mix them write {all_named}")
    with prints_to_stderr(json_):
        named = [Environment.load(name) for name in (env or ([environment] if environment is not None else []))]
        if options.files.output is None:
            options = options.replace(output=_default_output(named, options.rows.shard))
        collection = Collection(named if env else named[0] if named else None, options)
    raise Exit(_run(collection, as_json=json_))


def _default_output(environments: list[Environment], shard: str | None) -> Path:
    """A new folder in `runs`, named after the environment: no path separators, no leading dot."""
    name = environments[0].name if len(environments) == 1 else "mixed"
    name = re.sub(r"[^\w.:-]+", "_", name).lstrip(".")[:100] or "run"
    suffix = f"-{shard.replace('/', '-of-')}" if shard is not None else ""
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"


def _run(collection: Collection, as_json: bool) -> int:
    import asyncio

    from ludus.cli.progress import Display, summarise
    from ludus.cli.screen import prints_to_stderr, safe_json
    from ludus.runtime.running import run

    display = Display(quiet=as_json)
    try:
        with prints_to_stderr(as_json):
            collector = collection.prepare(tick=display.reading)
    except KeyboardInterrupt:
        display.say("stopped before the first rollout")
        return INTERRUPTED
    _say_before_run(collection, collector, display)
    try:
        with prints_to_stderr(as_json):
            run(_until_stopped(collection, collector, display.watch))
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.close()
        total = collector.progress.total
        done = min(collector.metrics.dispatched, total)
        display.say(f"stopped: {done} of {total} rollouts are saved in {collection.options.files.output}")
        display.say(f"continue with: {_resume_command(collection)}")
        return INTERRUPTED
    finally:
        display.close()
        for problem in collection.observer.problems if collection.observer is not None else ():
            display.say(f"warning: {problem}")
    display.warn_of_blocking(collector)
    if as_json:
        print(safe_json(collection.metrics))
    else:
        summarise(collection)
    if collection.final_check is not None:
        display.say(str(collection.final_check))
        if collection.final_check.problems:
            return 1
    if not collector.progress.total:
        display.say(f"shard {collection.options.rows.shard} has no tasks: the collection has fewer tasks than shards")
        return 0
    counts, files = collection.metrics["counts"], collection.files
    if not counts["completed"]:
        display.say(f"no rollout completed: {_why_none_completed(collection)}")
        return 1
    if counts["failed"] and files is not None:
        display.say(f"{counts['failed']} failed, see {files.failures}. Play them again: {_resume_command(collection)}")
    return 0


def _say_before_run(collection: Collection, collector: Collector, display: Display) -> None:
    """Say what looks wrong in the rows, and which rollouts are not run, and why."""
    for warning in collection.warnings:
        display.say(f"warning: {warning}")
    if collection.observer is not None and collection.observer.metrics_url is not None:
        display.say(f"metrics: {collection.observer.metrics_url}")
    if left_out := getattr(collection.rows, "left_out", 0):
        display.say(f"skipped {left_out} recorded rollouts: failed, or without a model call after --turn")
    progress, max_attempts = collector.progress, collection.options.stop.max_attempts
    if progress.skipped:
        done = progress.skipped - progress.exhausted
        display.say(f"resuming: {done} of {progress.total} rollouts are already done")
    if progress.exhausted:
        times = "once" if max_attempts == 1 else f"{max_attempts} times"
        hint = f"to retry add --max-attempts {max_attempts + 1}"
        display.say(f"{progress.exhausted} rollouts failed {times} and are not retried: {hint}")


def _why_none_completed(collection: Collection) -> str:
    """The most common mask reason, and the file that holds the failures."""
    from ludus.cli.screen import one_line

    counts, files = collection.metrics["counts"], collection.files
    where = f"see {files.failures if files else 'metrics'}"
    if not counts["masked"]:
        return where
    masks = Counter(rollout.verdict.mask for rollout in islice(collection, MASK_SAMPLE) if rollout.verdict is not None)
    masked = f"{counts['masked']} masked, mostly because: {one_line(str(masks.most_common(1)[0][0]))}"
    return f"{masked}; {counts['failed']} failed, {where}" if counts["failed"] else masked


async def _until_stopped(collection: Collection, collector: Collector, watch: Watcher) -> None:
    """Run the collection until it ends, or until Ctrl-C, SIGTERM or a request in control.json."""
    import asyncio

    from ludus.collection.control import follow, forget
    from ludus.collection.run_status import write_status

    cancel_on_sigterm()
    collecting, files = asyncio.current_task(), collection.files
    if files is None or collecting is None:
        await collection.run(collector, watch)
        return
    following = asyncio.create_task(follow(files.control, collector.control, collecting.cancel))
    reporting = asyncio.create_task(write_status(files.status, collector))
    try:
        await collection.run(collector, watch)
    finally:
        following.cancel()
        reporting.cancel()
        forget(files.control)
        forget(files.status)


def _resume_command(collection: Collection) -> str:
    """The command that resumes this run: the typed command with --output and --resume."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    if collection.options.files.output is not None and not {"--output", "-o"} & {word.split("=")[0] for word in words}:
        words += ["--output", str(collection.options.files.output)]
    return shlex.join(["ludus", *words, "--resume"])
