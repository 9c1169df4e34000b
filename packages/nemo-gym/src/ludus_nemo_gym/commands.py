"""The `ng_*` commands. Each is thin: Ludus does the work."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.entry_points import (
    INTERRUPTED,
    Arguments,
    entry_point,
    optional_number,
    options,
    print_columns,
    print_notes,
    required_text,
)
from ludus_nemo_gym.trees import Tree

if TYPE_CHECKING:
    from ludus_nemo_gym.collecting import CollectOptions, RemoteCollection
    from ludus_nemo_gym.launch import Launch


@entry_point
def ng_run(arguments: Arguments) -> int:
    """Start servers, and keep them running until Ctrl-C.

    Example: ng_run "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,\\
    responses_api_models/openai_model/configs/openai_model.yaml]"

    With +dry_run=true it only prints what it would start.
    """
    from ludus_nemo_gym.starting import plan_of, start
    from ludus_nemo_gym.wiring import wire

    launch = wire(read_config(arguments))
    if launch.dry_run:
        plan_of(launch)
        print_columns([("server", "what", "address"), *_table(launch)])
    print_notes(launch.notes)
    if not launch.dry_run:
        start(launch)
    return 0


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
    +resume_from_cache=true           skip finished rollouts and retry failed ones
    +disable_aggregation=true         write no X_aggregate_metrics.json
    """
    from ludus_nemo_gym.agent_servers import find_running, head_url
    from ludus_nemo_gym.collecting import RemoteCollection

    tree = options(arguments, _COLLECT | _UNSUPPORTED.keys())
    for key, why in _UNSUPPORTED.items():
        if tree.get(key):
            raise UserError(f"{key} is not supported: {why}", f"Leave {key} out")
    collection = RemoteCollection(_collect_options(tree), asyncio.run(find_running(head_url(tree))))
    try:
        return _collect(collection)
    finally:
        collection.close()


@entry_point
def ng_prepare_data(arguments: Arguments) -> int:
    """Check the datasets of agents, compute their metrics, and collate them.

    Example: ng_prepare_data "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]" \\
    +output_dirpath=data/mcqa +mode=example_validation

    +mode=train_preparation|example_validation  the kinds of datasets to use
    +output_dirpath=DIR                         the folder for {train,validation,example}.jsonl
    +should_download=true                       download missing files (needs huggingface_hub)
    +overwrite_metrics_conflicts=true           replace metrics files that differ
    """
    from ludus_nemo_gym.preparing import prepare_data

    config = read_config(arguments, check=False)
    tree = config.tree
    if config.problems:
        raise UserError("; ".join(config.problems))
    mode, output = (required_text(tree, key) for key in ("mode", "output_dirpath"))
    download, overwrite = (bool(tree.get(key)) for key in ("should_download", "overwrite_metrics_conflicts"))
    for path, rows in prepare_data(config, mode, Path(output), download=download, overwrite=overwrite):
        print(f"{path}: {rows} rows")
    return 0


@entry_point
def ng_init_resources_server(arguments: Arguments) -> int:
    """Create a small working environment in a new folder.

    Example: ng_init_resources_server +entrypoint=resources_servers/my_game
    """
    from ludus.cli.new import new
    from ludus_nemo_gym.search_paths import normal

    path = Path(normal(required_text(options(arguments, {"entrypoint"}), "entrypoint")))
    new(path.name, path.parent)
    print(f"  ng_run '+config_paths=[{path}/configs/{path.name}.yaml,MODEL.yaml]'")
    return 0


@entry_point
def ng_test(arguments: Arguments) -> int:
    """Run the tests of an environment.

    Example: ng_test +entrypoint=resources_servers/mcqa
    """
    from ludus_nemo_gym.search_paths import entry_folder, environment_names

    entrypoint = required_text(options(arguments, {"entrypoint"}), "entrypoint")
    name, folder = entry_folder(entrypoint)
    if folder is None:
        raise UserError(f"there is no environment {name}", did_you_mean(name, environment_names()))
    if not any(folder.rglob("test_*.py")):
        raise UserError(
            f"{folder} has no tests",
            "Add a test_*.py there; built-in environments have tests in a source checkout only",
        )
    return subprocess.run([sys.executable, "-m", "pytest", "-q", str(folder)], check=False).returncode


@entry_point
def ng_status(arguments: Arguments) -> int:
    """Show the running servers and their state.

    Example: ng_status ++head_server.port=11000
    """
    import typer

    from ludus.cli.status import status
    from ludus_nemo_gym.agent_servers import TOKEN, head_url

    as_json = "--json" in arguments
    tree = options([each for each in arguments if each != "--json"], {"json"})
    try:
        status(head_url(tree), TOKEN, as_json or bool(tree.get("json")))
    except typer.Exit as end:
        return end.exit_code
    return 0


@entry_point
def ng_dump_config(arguments: Arguments) -> int:
    """Print the merged configuration, without secrets.

    Example: ng_dump_config "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"
    """
    import yaml

    config = read_config(arguments, check=False)
    print(yaml.safe_dump(config.public(), sort_keys=False, allow_unicode=True), end="")
    print_notes([*config.notes, *config.problems])
    return 0


@entry_point
def ng_viewer(arguments: Arguments) -> int:
    """Read rollouts in the terminal.

    Example: ng_viewer +jsonl_fpath=rollouts.jsonl

    +number=N shows one rollout in full, +limit=N lists more of them.
    """
    from ludus.cli.show import show

    tree = options(arguments, {"jsonl_fpath", "number", "limit"})
    number = tree.get("number")
    which = None if number is None else str(number)
    show(Path(required_text(tree, "jsonl_fpath")), which, None, False, optional_number(tree, "limit") or 20, False)
    return 0


@entry_point
def ng_version(arguments: Arguments) -> int:
    """Print the version."""
    import ludus

    print(f"ludus {ludus.__version__}, with NeMo Gym's configuration files and commands")
    return 0


@entry_point
def ng_help(arguments: Arguments) -> int:
    """List the commands."""
    print_columns([(name, (inspect.getdoc(command) or "").partition("\n")[0]) for name, command in COMMANDS.items()])
    print("Print the help of a command with +help=true.")
    return 0


COMMANDS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        ng_run,
        ng_collect_rollouts,
        ng_prepare_data,
        ng_init_resources_server,
        ng_test,
        ng_status,
        ng_dump_config,
        ng_viewer,
        ng_version,
        ng_help,
    )
}

_COLLECT = set(
    "agent_name input_jsonl_fpath output_jsonl_fpath limit num_repeats num_repeats_add_seed num_samples_in_parallel "
    "responses_create_params resume_from_cache disable_aggregation".split()
)
_UNSUPPORTED = {
    "prompt_config": "each row must hold its prompt",
    "skills": "Ludus has no skills",
    "upload_rollouts": "Ludus uploads nothing",
    "rollout_collection_driver": "running agents play the rollouts",
}


def _collect_options(tree: Tree) -> CollectOptions:
    """The checked options of `ng_collect_rollouts`."""
    from ludus_nemo_gym.collecting import CONCURRENCY, CollectOptions
    from ludus_nemo_gym.materialize import Expansion
    from ludus_nemo_gym.search_paths import find_data

    repeats, params = _repeats(tree.get("num_repeats")), tree.get("responses_create_params") or {}
    if not isinstance(params, dict):
        raise UserError(
            "responses_create_params must be a mapping", "Example: '+responses_create_params={temperature: 1}'"
        )
    agent = tree.get("agent_name")
    expansion = Expansion(
        None if agent is None else str(agent),
        optional_number(tree, "limit"),
        repeats,
        bool(tree.get("num_repeats_add_seed")),
        params,
    )
    output = Path(required_text(tree, "output_jsonl_fpath"))
    if output.suffix != ".jsonl":
        raise UserError(f"output_jsonl_fpath {output} must end with .jsonl", f"Example: {output.with_suffix('.jsonl')}")
    concurrency = optional_number(tree, "num_samples_in_parallel") or CONCURRENCY
    resume, aggregate = bool(tree.get("resume_from_cache")), not tree.get("disable_aggregation")
    source = required_text(tree, "input_jsonl_fpath")
    return CollectOptions(find_data(source) or Path(source), output, expansion, concurrency, resume, aggregate)


def _repeats(given: Any) -> int | dict[str, int]:
    """The rollouts of each row: a number, or a number for each agent. Null is 1."""
    each = given if isinstance(given, dict) else {"": given}
    numbers = {agent: 1 if times is None else times for agent, times in each.items()}
    if not all(isinstance(times, int) and not isinstance(times, bool) and times > 0 for times in numbers.values()):
        raise UserError(f"num_repeats {given!s:.60} is not a number from 1 on", "Example: +num_repeats=4")
    return numbers if isinstance(given, dict) else numbers[""]


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
        completed = _summarise(remote.collection.metrics)
    if remote.options.aggregate:
        asyncio.run(remote.write_metrics())
    print(f"rollouts: {files.rollouts}")
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


def _table(launch: Launch) -> list[tuple[str, str, str]]:
    rows = [("head", "lists the other servers", f"{launch.head_host}:{launch.head_port or 'any port'}")]
    return rows + [(each.name, each.description(), f"{each.host}:{each.port or 'any port'}") for each in launch.servers]
