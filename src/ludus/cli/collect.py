"""`ludus collect`: from an environment and a model to files of verified rollouts."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ludus.cli.bounds import LARGEST, MOST
from ludus.cli.stopping import cancel_on_sigterm

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.collection.api import Collection, Watcher
    from ludus.collection.collector import Collector
    from ludus.environment import Environment

INTERRUPTED = 130
#: How many rollouts are read to say what most were masked for.
A_SAMPLE = 1000


def collect(
    environment: Annotated[
        str | None, typer.Argument(metavar="ENV", help="Name or folder; without it each row's agent_ref says.")
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="Rows as JSONL, - for standard input; default: its examples.")
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Which of its datasets to use.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder, or X.jsonl; default: runs/ENV-TIME.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="local, openai:NAME, URL#NAME, scripted:FILE or scripted:mod:func.")
    ] = "local",
    repeats: Annotated[int, typer.Option("--repeats", "-n", min=1, max=MOST, help="Rollouts per task.")] = 1,
    concurrency: Annotated[
        str | None,
        typer.Option("--concurrency", "-c", help="Rollouts at once, or auto; default: what suits the model."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Use only the first rows.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a collection, retrying what failed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --resume: continue although the run differs.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a collection that is already there.")] = False,
    seed: Annotated[
        int, typer.Option(min=-LARGEST, max=LARGEST, help="Where every rollout's seed is derived from.")
    ] = 0,
    max_attempts: Annotated[int, typer.Option(min=1, max=MOST, help="Tries per rollout over all resumes.")] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PART.KEY=VALUE", help="A setting of resources, agent, model, limits or data."),
    ] = None,
    resources: Annotated[
        str | None, typer.Option(metavar="URL", help="Use the resources of that server (ludus serve).")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="URL", help="Have that agent server play; it has its own model.")
    ] = None,
    branch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from recorded rollouts: RUN/rollouts.jsonl.")
    ] = None,
    turn: Annotated[
        int | None, typer.Option(metavar="K", help="With --branch: after K model calls; -1: before the last one.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Mask rollouts whose token ids are not known.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON and nothing else.")] = False,
) -> None:
    """Collect verified rollouts.

    Example: ludus collect mcqa --model local --repeats 4 --output runs/first

    Eight continuations of every recorded rollout, from after its second model call:
    ludus collect workplace_assistant --branch runs/first/rollouts.jsonl --turn 2 --repeats 8
    """
    from ludus.cli.screen import prints_aside
    from ludus.collection.api import Collection, Options
    from ludus.environment import Environment
    from ludus.runtime.settings import parse_assignments

    options = Options(
        model=model,
        input=input,
        dataset=dataset,
        output=output,
        repeats=repeats,
        concurrency=_at_once(concurrency),
        limit=limit,
        resume=resume,
        force=force,
        overwrite=overwrite,
        seed=seed,
        max_attempts=max_attempts,
        tokens=tokens,
        settings=parse_assignments(set_ or []),
        resources=resources,
        agent=agent,
        branch=branch,
        turn=turn,
    )
    with prints_aside(json_):
        loaded = Environment.load(environment) if environment is not None else None
        if options.output is None:
            options.output = Path("runs") / f"{_folder_name(loaded)}-{time.strftime('%Y%m%d-%H%M%S')}"
        collection = Collection(loaded, options)
    raise typer.Exit(_run(collection, as_json=json_))


def _folder_name(environment: Environment | None) -> str:
    """What a folder for rollouts is called after: a name that is one part of a path, and not a hidden one."""
    name = environment.name if environment is not None else "mixed"
    return re.sub(r"[^\w.:-]+", "_", name).lstrip(".")[:100] or "run"


def _at_once(given: str | None) -> int | Literal["auto"] | None:
    from ludus.errors import UserError

    if given is None or given == "auto":
        return None if given is None else "auto"
    number = int(given) if given.isdecimal() and len(given) < 20 else 0
    if not 1 <= number <= MOST:
        what = f"--concurrency {given:.40} is neither auto nor a number from 1 to {MOST:,}"
        raise UserError(what, "Example: --concurrency 64")
    return number


def _run(collection: Collection, as_json: bool) -> int:
    from ludus.cli.progress import Display, summarise
    from ludus.cli.screen import prints_aside, safe_json

    display = Display(quiet=as_json)
    try:
        with prints_aside(as_json):
            collector = collection.prepare(tick=display.reading)
    except KeyboardInterrupt:
        display.say("stopped before the first rollout")
        return INTERRUPTED
    _say_what_is_there(collection, collector, display)
    try:
        with prints_aside(as_json):
            asyncio.run(_until_stopped(collection, collector, display.watch))
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.close()
        total = collector.progress.total
        done = min(collector.metrics.dispatched, total)
        display.say(f"stopped: {done} of {total} rollouts are safe in {collection.options.output}")
        display.say(f"continue with: {_resume_command(collection)}")
        return INTERRUPTED
    finally:
        display.close()
    if as_json:
        print(safe_json(collection.metrics))
    else:
        summarise(collection, collector)
    if not collection.metrics["counts"]["completed"]:
        display.say(f"nothing completed: {_why(collection)}")
        return 1
    return 0


def _say_what_is_there(collection: Collection, collector: Collector, display: Display) -> None:
    """What will not be played, and why."""
    if left_out := getattr(collection.rows, "left_out", 0):
        display.say(f"left out: {left_out} recorded rollouts that made no model call after that turn, or failed")
    progress, most = collector.progress, collection.options.max_attempts
    if progress.skipped:
        there = progress.skipped - progress.exhausted
        display.say(f"resuming: {there} of {progress.total} rollouts are there already")
    if progress.exhausted:
        times = "once" if most == 1 else f"{most} times"
        display.say(f"{progress.exhausted} failed {times} and are not tried again: add --max-attempts {most + 1}")


def _why(collection: Collection) -> str:
    """Why nothing completed, or where to read it: the reasons of masks stand with each rollout, so one is quoted."""
    from ludus.cli.screen import one_line

    counts, files = collection.metrics["counts"], collection.files
    where = f"see why in {files.failures if files else 'metrics'}"
    if not counts["masked"]:
        return where
    masks = Counter(rollout.verdict.mask for rollout in islice(collection, A_SAMPLE) if rollout.verdict is not None)
    masked = f"{counts['masked']} masked, mostly because: {one_line(str(masks.most_common(1)[0][0]))}"
    return f"{masked}; {counts['failed']} failed, {where}" if counts["failed"] else masked


async def _until_stopped(collection: Collection, collector: Collector, watch: Watcher) -> None:
    """Run the collection; SIGTERM stops it as cleanly as Ctrl-C does."""
    cancel_on_sigterm()
    await collection.run(collector, watch)


def _resume_command(collection: Collection) -> str:
    """What to type to go on: the command that was typed, with its output named and --resume added."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    if collection.options.output is not None and not {"--output", "-o"} & {word.split("=")[0] for word in words}:
        words += ["--output", str(collection.options.output)]
    return shlex.join(["ludus", *words, "--resume"])
