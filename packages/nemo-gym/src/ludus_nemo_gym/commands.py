"""The `ng_*` commands: thin doors to what Ludus does."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.doors import INTERRUPTED, Arguments, a_number, a_text, columns, door, note, options
from ludus_nemo_gym.trees import Tree

if TYPE_CHECKING:
    from ludus_nemo_gym.collecting import Gathering, Wanted
    from ludus_nemo_gym.launch import Launch


@door
def ng_run(arguments: Arguments) -> int:
    """Start servers, and keep them running until Ctrl-C.

    Example: ng_run "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,\\
    responses_api_models/openai_model/configs/openai_model.yaml]"

    With +dry_run=true it only says what it would start.
    """
    from ludus_nemo_gym.starting import plan_of, start
    from ludus_nemo_gym.wiring import wire

    launch = wire(read_config(arguments))
    if launch.dry_run:
        plan_of(launch)
        columns([("server", "what", "address"), *_table(launch)])
    note(launch.notes)
    if not launch.dry_run:
        start(launch)
    return 0


@door
def ng_collect_rollouts(arguments: Arguments) -> int:
    """Collect verified rollouts from running servers.

    Example: ng_collect_rollouts +agent_name=mcqa_simple_agent +input_jsonl_fpath=rows.jsonl \\
    +output_jsonl_fpath=rollouts.jsonl

    +agent_name=NAME                  who plays the rows that name no agent
    +limit=N                          use only the first rows
    +num_repeats=N                    rollouts of each row; or '{AGENT: N, _default: N}'
    +num_repeats_add_seed=true        give each repeat a seed of its own
    +num_samples_in_parallel=N        rollouts at once
    '+responses_create_params={...}'  fields that every request gets
    +resume_from_cache=true           continue what was begun, and try again what failed
    +disable_aggregation=true         write no X_aggregate_metrics.json
    """
    from ludus_nemo_gym.collecting import Gathering
    from ludus_nemo_gym.running import find_running, head_url

    tree = options(arguments, _COLLECT | _NOT_HERE.keys())
    for key, why in _NOT_HERE.items():
        if tree.get(key):
            raise UserError(f"{key} is not supported: {why}", f"Leave {key} out")
    gathering = Gathering(_wanted(tree), asyncio.run(find_running(head_url(tree))))
    try:
        return _gather(gathering)
    finally:
        gathering.close()


@door
def ng_prepare_data(arguments: Arguments) -> int:
    """Check the datasets of agents, describe them in numbers, and put them together.

    Example: ng_prepare_data "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]" \\
    +output_dirpath=data/mcqa +mode=example_validation

    +mode=train_preparation|example_validation  which kinds of datasets
    +output_dirpath=DIR                         where {train,validation,example}.jsonl go
    +should_download=true                       fetch what is missing, where huggingface_hub is installed
    +overwrite_metrics_conflicts=true           replace metrics that differ
    """
    from ludus_nemo_gym.preparing import prepare_data

    config = read_config(arguments, check=False)
    tree = config.tree
    if config.problems:
        raise UserError("; ".join(config.problems))
    mode, output = (a_text(tree, key) for key in ("mode", "output_dirpath"))
    download, overwrite = (bool(tree.get(key)) for key in ("should_download", "overwrite_metrics_conflicts"))
    for path, rows in prepare_data(config, mode, Path(output), download=download, overwrite=overwrite):
        print(f"{path}: {rows} rows")
    return 0


@door
def ng_init_resources_server(arguments: Arguments) -> int:
    """Make a new environment in a folder, small and working.

    Example: ng_init_resources_server +entrypoint=resources_servers/my_game
    """
    from ludus.cli.new import new
    from ludus_nemo_gym.places import normal

    path = Path(normal(a_text(options(arguments, {"entrypoint"}), "entrypoint")))
    new(path.name, path.parent)
    print(f"  ng_run '+config_paths=[{path}/configs/{path.name}.yaml,MODEL.yaml]'")
    return 0


@door
def ng_test(arguments: Arguments) -> int:
    """Run the tests of an environment.

    Example: ng_test +entrypoint=resources_servers/mcqa
    """
    from ludus_nemo_gym.places import entry_folder, environment_names

    entrypoint = a_text(options(arguments, {"entrypoint"}), "entrypoint")
    name, folder = entry_folder(entrypoint)
    if folder is None:
        raise UserError(f"there is no environment {name}", did_you_mean(name, environment_names()))
    if not any(folder.rglob("test_*.py")):
        raise UserError(f"{folder} has no tests", "Add a test_*.py there, or install from source for ours")
    return subprocess.run([sys.executable, "-m", "pytest", "-q", str(folder)], check=False).returncode


@door
def ng_status(arguments: Arguments) -> int:
    """Show the servers that run, and how they are.

    Example: ng_status ++head_server.port=11000
    """
    import typer

    from ludus.cli.status import status
    from ludus_nemo_gym.running import TOKEN, head_url

    as_json = "--json" in arguments
    tree = options([each for each in arguments if each != "--json"], {"json"})
    try:
        status(head_url(tree), TOKEN, as_json or bool(tree.get("json")))
    except typer.Exit as end:
        return end.exit_code
    return 0


@door
def ng_dump_config(arguments: Arguments) -> int:
    """Print the merged configuration, without secrets.

    Example: ng_dump_config "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"
    """
    import yaml

    config = read_config(arguments, check=False)
    print(yaml.safe_dump(config.public(), sort_keys=False, allow_unicode=True), end="")
    note([*config.notes, *config.problems])
    return 0


@door
def ng_viewer(arguments: Arguments) -> int:
    """Read rollouts in the terminal.

    Example: ng_viewer +jsonl_fpath=rollouts.jsonl

    +number=N shows one of them whole, +limit=N lists more.
    """
    from ludus.cli.show import show

    tree = options(arguments, {"jsonl_fpath", "number", "limit"})
    number = tree.get("number")
    which = None if number is None else str(number)
    show(Path(a_text(tree, "jsonl_fpath")), which, None, False, a_number(tree, "limit") or 20, False)
    return 0


@door
def ng_version(arguments: Arguments) -> int:
    """Print the version."""
    import ludus

    print(f"ludus {ludus.__version__}, which speaks NeMo Gym's configuration and commands")
    return 0


@door
def ng_help(arguments: Arguments) -> int:
    """List the commands."""
    columns([(name, (inspect.getdoc(command) or "").partition("\n")[0]) for name, command in COMMANDS.items()])
    print("Each of them explains itself with +help=true.")
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
_NOT_HERE = {
    "prompt_config": "prompts are part of rows here",
    "skills": "there are no skills here",
    "upload_rollouts": "rollouts stay where you write them",
    "rollout_collection_driver": "rollouts are played by running agents",
}


def _wanted(tree: Tree) -> Wanted:
    """What a collection is asked for."""
    from ludus_nemo_gym.collecting import AT_ONCE, Wanted
    from ludus_nemo_gym.materialize import Expansion

    repeats, params = tree.get("num_repeats", 1), tree.get("responses_create_params") or {}
    each = repeats.values() if isinstance(repeats, dict) else [repeats]
    if not all(isinstance(times, int) and not isinstance(times, bool) and times > 0 for times in each):
        raise UserError(f"num_repeats {repeats!s:.60} is not a number from 1 on", "Example: +num_repeats=4")
    if not isinstance(params, dict):
        raise UserError(
            "responses_create_params must be a mapping", "Example: '+responses_create_params={temperature: 1}'"
        )
    agent = tree.get("agent_name")
    how = Expansion(
        None if agent is None else str(agent),
        a_number(tree, "limit"),
        repeats,
        bool(tree.get("num_repeats_add_seed")),
        params,
    )
    output = Path(a_text(tree, "output_jsonl_fpath"))
    if output.suffix != ".jsonl":
        raise UserError(f"output_jsonl_fpath {output} must end with .jsonl", f"Example: {output.with_suffix('.jsonl')}")
    at_once = a_number(tree, "num_samples_in_parallel") or AT_ONCE
    resume, aggregate = bool(tree.get("resume_from_cache")), not tree.get("disable_aggregation")
    return Wanted(Path(a_text(tree, "input_jsonl_fpath")), output, how, at_once, resume, aggregate)


def _gather(gathering: Gathering) -> int:
    from ludus.cli.progress import Display

    display = Display()
    collector = gathering.prepare()
    files = gathering.files
    if gathering.done:
        display.say(f"resuming: {len(gathering.done)} rollouts are done already")
    completed = 1
    if collector is not None and gathering.collection is not None:
        try:
            asyncio.run(gathering.collection.run(collector, display.watch))
        except (KeyboardInterrupt, asyncio.CancelledError):
            display.close()
            display.say(f"stopped: what is finished is safe in {files.rollouts}; go on with +resume_from_cache=true")
            return INTERRUPTED
        finally:
            display.close()
        completed = _summarise(gathering.collection.metrics)
    if gathering.wanted.aggregate:
        asyncio.run(gathering.write_metrics())
    print(f"rollouts: {files.rollouts}")
    if not completed:
        display.say(f"nothing completed: see why in {files.failures}")
    return 0 if completed else 1


def _summarise(metrics: Tree) -> int:
    """Say what was collected; how many rollouts have a verdict."""
    from ludus.cli.screen import one_line

    counts, reward = metrics["counts"], metrics["reward"]["mean"]
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in ("completed", "failed", "masked")))
    for kind, count in list(metrics["failures"].items())[:5]:
        print(f"  {count} failed with {one_line(kind)}")
    if reward is not None:
        print(f"mean reward: {reward:.3f}")
    return int(counts["completed"] + counts["masked"])


def _table(launch: Launch) -> list[tuple[str, str, str]]:
    rows = [("head", "says where the others are", f"{launch.head_host}:{launch.head_port or 'any port'}")]
    return rows + [(each.name, each.what(), f"{each.host}:{each.port or 'any port'}") for each in launch.servers]
