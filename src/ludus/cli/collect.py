"""`ludus collect`: run a model in an environment and write verified rollouts to files."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ludus.cli.option_limits import MAX_COUNT, MAX_INT64, MAX_WORKERS
from ludus.cli.signals import cancel_on_sigterm

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.collection.collection import Collection, Watcher
    from ludus.collection.collector import Collector
    from ludus.environment import Environment

INTERRUPTED = 130
#: How many rollouts are read to find the most common mask reason.
MASK_SAMPLE = 1000


def collect(
    environment: Annotated[
        str | None, typer.Argument(metavar="ENV", help="Name or folder; default: each row's agent_ref.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="ENV", help="An environment that rows may name; repeat it to mix several."),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="JSONL, JSON, CSV, Parquet, - or hf:OWNER/NAME; default: example rows."),
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Which dataset to use.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder, or a file X.jsonl; default: runs/ENV-TIME.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="local, openai:NAME, URL#NAME, scripted:FILE or scripted:mod:func.")
    ] = "local",
    repeats: Annotated[int, typer.Option("--repeats", "-n", min=1, max=MAX_COUNT, help="Rollouts per task.")] = 1,
    concurrency: Annotated[
        str | None,
        typer.Option("--concurrency", "-c", help="Rollouts in flight, or auto; default: depends on the model."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", min=1, max=MAX_WORKERS, help="Processes that play rollouts; default: 1."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS|local", help="Play rollouts on a Ray cluster (docs/ray.md).")
    ] = None,
    ray_env: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --ray: a runtime environment for the nodes, as YAML.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_INT64, help="Use only the first N rows.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a collection; retry failed rollouts.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --resume: ignore changed settings or data.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing collection.")] = False,
    seed: Annotated[int, typer.Option(min=-MAX_INT64, max=MAX_INT64, help="Rollout seeds derive from this.")] = 0,
    max_attempts: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Attempts per rollout over all resumes.")] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="[ENV.]PART.KEY=VALUE", help="A setting of resources, agent, model, limits or data."
        ),
    ] = None,
    pass_: Annotated[
        float | None,
        typer.Option("--pass", metavar="REWARD", help="The lowest reward that is a pass; default: the environment's."),
    ] = None,
    resources: Annotated[
        str | None, typer.Option(metavar="URL", help="Use resources on a server (ludus serve).")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="URL", help="Run rollouts on an agent server, with its model.")
    ] = None,
    branch: Annotated[Path | None, typer.Option(metavar="FILE", help="Continue the rollouts in FILE.")] = None,
    turn: Annotated[
        int | None, typer.Option(metavar="K", help="With --branch: cut after K model calls; -1: before the last one.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="FILE|TEXT", help="A template with {field}, for rows without a prompt.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Run only the I-th of N shards; join them with ludus merge.")
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(metavar="ENV=WEIGHT,...", help="Weights of several --env; --limit is then for all rows together."),
    ] = None,
    checkpoint: Annotated[
        bool | None,
        typer.Option("--checkpoint/--no-checkpoint", help="Save each turn for --resume; default: where possible."),
    ] = None,
    enough: Annotated[
        int | None, typer.Option(min=1, max=MAX_COUNT, help="End a task's slower rollouts once N have ended well.")
    ] = None,
    group_deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End a task's rollouts so long after the first began.")
    ] = None,
    max_staleness: Annotated[
        int | None, typer.Option(min=0, max=MAX_INT64, help="End rollouts more than N policy versions behind.")
    ] = None,
    chaos: Annotated[
        str | None, typer.Option(metavar="FAULT=RATE,...", help="Inject faults, and check the records at the end.")
    ] = None,
    otel: Annotated[
        bool, typer.Option("--otel", help="Send OpenTelemetry spans, as the OTEL_* variables say.")
    ] = False,
    metrics_port: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus; 0 takes a free port.")
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:ARG]", help="Write charts to wandb, mlflow or tensorboard; may be repeated."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Request token ids; mask rollouts without them.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON and nothing else.")] = False,
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
    from ludus.collection.options import Options
    from ludus.data.mixing import parse_mix
    from ludus.environment import Environment
    from ludus.errors import UserError
    from ludus.runtime.settings import parse_assignments

    options = Options(
        model=model,
        input=input,
        dataset=dataset,
        output=output,
        repeats=repeats,
        concurrency=_parse_concurrency(concurrency),
        workers=workers,
        ray=ray,
        ray_env=ray_env,
        limit=limit,
        resume=resume,
        force=force,
        overwrite=overwrite,
        seed=seed,
        max_attempts=max_attempts,
        tokens=tokens,
        checkpoint=checkpoint,
        enough=enough,
        chaos=chaos,
        group_deadline=group_deadline,
        max_staleness=max_staleness,
        settings=parse_assignments(set_ or []) | ({"pass_reward": pass_} if pass_ is not None else {}),
        resources=resources,
        agent=agent,
        branch=branch,
        turn=turn,
        prompt=prompt,
        shard=shard,
        mix=parse_mix(mix) if mix is not None else None,
        otel=otel,
        metrics_port=metrics_port,
        log_to=log_to,
    )
    if environment is not None and env:
        named_all = " ".join(f"--env {each}" for each in (environment, *env))
        raise UserError(f"{environment} is named without --env and {env[0]} with it", f"To mix them write {named_all}")
    with prints_to_stderr(json_):
        named = [Environment.load(each) for each in (env or ([environment] if environment is not None else []))]
        if options.output is None:
            suffix = f"-{options.shard.replace('/', '-of-')}" if options.shard is not None else ""
            options.output = Path("runs") / f"{_folder_name(named)}-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"
        collection = Collection(named if env else named[0] if named else None, options)
    raise typer.Exit(_run(collection, as_json=json_))


def _folder_name(environments: list[Environment]) -> str:
    """The environment's name as a folder name: no path separators, no leading dot."""
    name = environments[0].name if len(environments) == 1 else "mixed"
    return re.sub(r"[^\w.:-]+", "_", name).lstrip(".")[:100] or "run"


def _parse_concurrency(given: str | None) -> int | Literal["auto"] | None:
    from ludus.errors import UserError

    if given is None or given == "auto":
        return None if given is None else "auto"
    number = int(given) if given.isdecimal() and len(given) < 20 else 0
    if not 1 <= number <= MAX_COUNT:
        problem = f"--concurrency {given:.40} is neither auto nor a number from 1 to {MAX_COUNT:,}"
        raise UserError(problem, "Example: --concurrency 64")
    return number


def _run(collection: Collection, as_json: bool) -> int:
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
        display.say(f"stopped: {done} of {total} rollouts are saved in {collection.options.output}")
        display.say(f"continue with: {_resume_command(collection)}")
        return INTERRUPTED
    finally:
        display.close()
        for problem in collection.telemetry.problems if collection.telemetry is not None else ():
            display.say(f"warning: {problem}")
    display.warn_of_blocking(collector)
    if as_json:
        print(safe_json(collection.metrics))
    else:
        summarise(collection)
    if (chaos := collection.metrics.get("chaos")) is not None:
        display.say(_chaos_line(chaos))
        if chaos["problems"]:
            return 1
    if not collector.progress.total:
        display.say(f"shard {collection.options.shard} has no tasks: the collection has fewer tasks than shards")
        return 0
    if not collection.metrics["counts"]["completed"]:
        display.say(f"no rollout completed: {_why_none_completed(collection)}")
        return 1
    return 0


def _chaos_line(chaos: dict[str, Any]) -> str:
    """What was broken on purpose, and whether the records are right."""
    faults, problems, total = chaos["faults"], chaos["problems"], chaos["rollouts"]
    listed = ", ".join(f"{name} {count}" for name, count in sorted(faults.items())) or "none"
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"chaos: the records are wrong: {problems[0]}{more}. Faults: {listed}"
    return f"chaos: {total} rollouts, each with one record, none scored on a fault. Faults: {listed}"


def _say_before_run(collection: Collection, collector: Collector, display: Display) -> None:
    """Say what looks wrong in the rows, and which rollouts are not run, and why."""
    for warning in collection.warnings:
        display.say(f"warning: {warning}")
    if collection.telemetry is not None and collection.telemetry.metrics_url is not None:
        display.say(f"metrics: {collection.telemetry.metrics_url}")
    if left_out := getattr(collection.rows, "left_out", 0):
        display.say(f"skipped {left_out} recorded rollouts: failed, or without a model call after --turn")
    progress, max_attempts = collector.progress, collection.options.max_attempts
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
    from ludus.collection.control import follow, forget

    cancel_on_sigterm()
    collecting, files = asyncio.current_task(), collection.files
    if files is None or collecting is None:
        await collection.run(collector, watch)
        return
    following = asyncio.create_task(follow(files.control, collector.control, collecting.cancel))
    try:
        await collection.run(collector, watch)
    finally:
        following.cancel()
        forget(files.control)


def _resume_command(collection: Collection) -> str:
    """The command that resumes this run: the typed command with --output and --resume."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    if collection.options.output is not None and not {"--output", "-o"} & {word.split("=")[0] for word in words}:
        words += ["--output", str(collection.options.output)]
    return shlex.join(["ludus", *words, "--resume"])
