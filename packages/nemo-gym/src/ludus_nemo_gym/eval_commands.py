"""The commands that collect, merge, profile and re-verify rollouts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError
from ludus_nemo_gym.agent_servers import RunningServers, find_running
from ludus_nemo_gym.collecting import CONCURRENCY, CollectOptions, RemoteCollection
from ludus_nemo_gym.entry_points import (
    INTERRUPTED,
    Arguments,
    entry_point,
    optional_number,
    options,
    print_notes,
    required_text,
)
from ludus_nemo_gym.head import head_url
from ludus_nemo_gym.materialize import Expansion
from ludus_nemo_gym.prompts import read_prompt
from ludus_nemo_gym.search_paths import find_data
from ludus_nemo_gym.trees import Tree

_COLLECT = set(
    "agent_name input_jsonl_fpath output_jsonl_fpath limit num_repeats num_repeats_add_seed num_samples_in_parallel "
    "responses_create_params prompt_config resume_from_cache disable_aggregation".split()
)
_UNSUPPORTED = {
    "skills": "Ludus has no skills",
    "upload_rollouts": "Ludus uploads nothing",
    "rollout_collection_driver": "running agents play the rollouts",
}
_REVERIFY = set(
    "materialized_inputs_jsonl_fpath rollouts_jsonl_fpath output_jsonl_fpath num_samples_in_parallel limit force "
    "overwrite resume_from_cache disable_aggregation judge_failed_only".split()
)


@entry_point
def ng_collect_rollouts(arguments: Arguments) -> int:
    """Collect verified rollouts from running servers.

    Example: ng_collect_rollouts +agent_name=mcqa_simple_agent +input_jsonl_fpath=rows.jsonl \\
    +output_jsonl_fpath=rollouts.jsonl

    +agent_name=NAME                  the agent for rows that name none
    +limit=N                          use only the first rows
    +num_repeats=N                    rollouts of each row; or '{AGENT: N, _default: N}'
    +num_repeats_add_seed=true        give each repeat a different seed
    +num_samples_in_parallel=N        rollouts at once
    '+responses_create_params={...}'  fields to set in every request
    +prompt_config=FILE               build the prompt of rows without one from this template
    +resume_from_cache=true           skip finished rollouts and retry failed ones
    +disable_aggregation=true         write no X_aggregate_metrics.json
    """
    tree = options(arguments, _COLLECT | _UNSUPPORTED.keys())
    chosen = collect_options(tree, required_text(tree, "input_jsonl_fpath"))
    return collect(chosen, asyncio.run(find_running(head_url(tree))))


@entry_point
def ng_e2e_collect_rollouts(arguments: Arguments) -> int:
    """Start servers, collect verified rollouts from them, and stop them.

    Example: ng_e2e_collect_rollouts "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,\\
    responses_api_models/openai_model/configs/openai_model.yaml]" +output_jsonl_fpath=results/rollouts.jsonl

    Takes the options of ng_collect_rollouts. Without +input_jsonl_fpath it uses the agents' datasets:

    +split=train|validation|benchmark|example  the type of the datasets (default: example)
    """
    from ludus_nemo_gym.config import read_config
    from ludus_nemo_gym.serving import served
    from ludus_nemo_gym.wiring import wire

    config = read_config(arguments)
    launch = wire(config)
    tree = config.tree
    source = tree.get("input_jsonl_fpath") or _datasets(config, Path(required_text(tree, "output_jsonl_fpath")))
    chosen = collect_options(tree, str(source))
    print_notes(launch.notes)
    with served(launch) as head:
        return collect(chosen, asyncio.run(find_running(head)))


@entry_point
def ng_aggregate_rollouts(arguments: Arguments) -> int:
    """Merge the rollouts of several collections, and compute their metrics.

    Example: ng_aggregate_rollouts '+input_glob=results/shard_*.jsonl' +output_jsonl_fpath=results/all.jsonl

    A rollout that stands in several files is counted once.
    """
    from ludus_nemo_gym.shards import merge_shards

    tree = options(arguments, {"input_glob", "output_jsonl_fpath"})
    files = merge_shards(required_text(tree, "input_glob"), Path(required_text(tree, "output_jsonl_fpath")))
    _print_key_metrics(files.metrics)
    print(f"Rollouts: {files.rollouts}")
    print(f"Aggregate metrics: {files.metrics}")
    return 0


def compare_runs(arguments: Arguments) -> int:
    """Compare the metrics of two collections."""
    from nemo_gym.comparison import compare_runs, write_report

    keys = ("baseline_fpath", "candidate_fpath", "output_dirpath")
    tree = options(arguments, set(keys))
    baseline, candidate, folder = (Path(required_text(tree, key)) for key in keys)
    for path in write_report(compare_runs(baseline, candidate), folder):
        print(path)
    return 0


@entry_point
def ng_reward_profile(arguments: Arguments) -> int:
    """Compute the rewards of each task: how often it was tried, and how often it was solved.

    An alias of `ludus profile` that also writes NeMo Gym's files.

    Example: ng_reward_profile +materialized_inputs_jsonl_fpath=results/r_materialized_inputs.jsonl \\
    +rollouts_jsonl_fpath=results/r.jsonl

    +allow_partial_rollouts=true  accept tasks that lack some of their rollouts
    """
    from ludus_nemo_gym.profiling import show_profile_of, write_profile

    keys = ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath")
    tree = options(arguments, {*keys, "allow_partial_rollouts"})
    inputs, rollouts = (Path(required_text(tree, key)) for key in keys)
    for path in write_profile(inputs, rollouts, partial=bool(tree.get("allow_partial_rollouts"))):
        print(path)
    show_profile_of(rollouts)
    return 0


@entry_point
def ng_reverify(arguments: Arguments) -> int:
    """Judge stored rollouts again, without asking a model.

    Example: ng_reverify "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]" \\
    +materialized_inputs_jsonl_fpath=results/r_materialized_inputs.jsonl +rollouts_jsonl_fpath=results/r.jsonl \\
    +output_jsonl_fpath=results/again.jsonl

    +limit=N                     judge only the first rollouts
    +num_samples_in_parallel=N   rollouts at once
    +resume_from_cache=true      continue an output that is not complete
    +overwrite=true              replace an output that exists
    +force=true                  also judge where a server cannot judge again; the output's name gets the prefix unsafe_
    +judge_failed_only=true      keep the rollouts, and judge only those that the judge failed on
    +disable_aggregation=true    write no X_aggregate_metrics.json
    """
    from ludus_nemo_gym.config import read_config
    from ludus_nemo_gym.reverifying import Reverification, resources_only
    from ludus_nemo_gym.serving import served
    from ludus_nemo_gym.wiring import wire

    options(arguments, _REVERIFY)
    config = read_config(arguments, check=False)
    tree = config.tree
    inputs, rollouts, output = (
        Path(required_text(tree, key))
        for key in ("materialized_inputs_jsonl_fpath", "rollouts_jsonl_fpath", "output_jsonl_fpath")
    )
    work = Reverification(inputs, rollouts, output, force=bool(tree.get("force")))
    work.check_output(resume=bool(tree.get("resume_from_cache")), overwrite=bool(tree.get("overwrite")))
    launch, resources_of = resources_only(wire, config)
    print_notes(launch.notes)
    with served(launch) as head, work.joined(judge_failed_only=bool(tree.get("judge_failed_only"))) as source:
        running = work.judges(asyncio.run(find_running(head)), resources_of)
        print_notes(work.notes)
        return collect(
            CollectOptions(
                source,
                work.output,
                Expansion(limit=optional_number(tree, "limit"), keep_indices=True),
                optional_number(tree, "num_samples_in_parallel") or CONCURRENCY,
                bool(tree.get("resume_from_cache")),
                not tree.get("disable_aggregation"),
                route="/verify",
            ),
            running,
            carried=work.carried,
        )


def collect(chosen: CollectOptions, running: RunningServers, carried: list[bytes] | None = None) -> int:
    """Collect from running servers, with a progress bar and a summary. Returns the exit code."""
    collection = RemoteCollection(chosen, running, carried or [])
    try:
        return _collect(collection)
    finally:
        collection.close()


def _datasets(config: Any, output: Path) -> Path:
    """The rows of the agents' datasets of one type, collated beside the output."""
    from ludus_nemo_gym.preparing import MODES, prepare_data

    split = str(config.tree.get("split") or "example")
    mode = next((mode for mode, kinds in MODES.items() if split in kinds), None)
    if mode is None:
        raise UserError(f"unknown split {split}", "Choose train, validation, benchmark or example")
    folder = output.with_name(f"{output.stem}_data")
    collated = {path.stem: path for path, _ in prepare_data(config, mode, folder, overwrite=True, only=split)}
    return collated[split]


def collect_options(tree: Tree, source: str) -> CollectOptions:
    """The checked options of a collection."""
    for key, why in _UNSUPPORTED.items():
        if tree.get(key):
            raise UserError(f"{key} is not supported: {why}", f"Leave {key} out")
    params = tree.get("responses_create_params") or {}
    if not isinstance(params, dict):
        raise UserError(
            "responses_create_params must be a mapping", "Example: '+responses_create_params={temperature: 1}'"
        )
    agent, prompt = tree.get("agent_name"), tree.get("prompt_config")
    expansion = Expansion(
        None if agent is None else str(agent),
        optional_number(tree, "limit"),
        _repeats(tree.get("num_repeats")),
        bool(tree.get("num_repeats_add_seed")),
        params,
        read_prompt(str(prompt)) if prompt else None,
    )
    output = Path(required_text(tree, "output_jsonl_fpath"))
    if output.suffix != ".jsonl":
        raise UserError(f"output_jsonl_fpath {output} must end with .jsonl", f"Example: {output.with_suffix('.jsonl')}")
    concurrency = optional_number(tree, "num_samples_in_parallel") or CONCURRENCY
    resume, aggregate = bool(tree.get("resume_from_cache")), not tree.get("disable_aggregation")
    return CollectOptions(find_data(source) or Path(source), output, expansion, concurrency, resume, aggregate)


def _repeats(repeats: Any) -> int | dict[str, int]:
    """The rollouts of each row: a number, or a number for each agent. Null is 1."""
    by_agent = repeats if isinstance(repeats, dict) else {"": repeats}
    numbers = {agent: 1 if times is None else times for agent, times in by_agent.items()}
    if not all(isinstance(times, int) and not isinstance(times, bool) and times > 0 for times in numbers.values()):
        raise UserError(f"num_repeats {repeats!s:.60} is not a number from 1 on", "Example: +num_repeats=4")
    return numbers if isinstance(repeats, dict) else numbers[""]


def _collect(remote: RemoteCollection) -> int:
    from ludus.cli.progress import Display

    display = Display()
    collector = remote.prepare()
    files = remote.files
    if remote.done:
        display.say(f"resuming: {len(remote.done)} rollouts are done already")
    completed = 1
    if collector is not None and remote.collection is not None:
        try:
            asyncio.run(remote.collection.run(collector, display.watch))
        except (KeyboardInterrupt, asyncio.CancelledError):
            display.close()
            display.say(f"stopped: finished rollouts are in {files.rollouts}; continue with +resume_from_cache=true")
            return INTERRUPTED
        finally:
            display.close()
        remote.replace()
        completed = _summarise(remote.collection.metrics)
    if remote.options.aggregate:
        asyncio.run(remote.write_metrics())
        print_notes(remote.notes)
        _print_key_metrics(files.metrics)
    print(f"Fully materialized inputs: {files.inputs}")
    print(f"Rollouts: {files.rollouts}")
    if remote.options.aggregate:
        print(f"Aggregate metrics: {files.metrics}")
    if not completed:
        display.say(f"no rollout completed: the failures are in {files.failures}")
    return 0 if completed else 1


def _summarise(metrics: Tree) -> int:
    """Print the counts and the mean reward. Returns how many rollouts have a verdict."""
    from ludus.cli.screen import one_line

    counts, reward = metrics["counts"], metrics["reward"]["mean"]
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in ("completed", "failed", "masked")))
    for kind, count in list(metrics["failures"].items())[:5]:
        print(f"  {count} failed with {one_line(kind)}")
    if reward is not None:
        print(f"mean reward: {reward:.3f}")
    return int(counts["completed"] + counts["masked"])


def _print_key_metrics(path: Path) -> None:
    """Print the most important statistics of each agent."""
    from ludus.cli.screen import one_line, safe_json

    for agent in orjson.loads(path.read_bytes()):
        print(f"\nKey metrics for {one_line(str(agent['agent_ref'].get('name')))}:")
        print(safe_json(agent.get("key_metrics")))
    print()
