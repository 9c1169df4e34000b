"""The subcommands of `gym`: what each does, its flags, and the `ng_*` command behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ludus.errors import UserError
from ludus_nemo_gym import commands, dataset_commands, eval_commands
from ludus_nemo_gym.entry_points import Arguments
from ludus_nemo_gym.gym_flags import COLLECT, COMPONENTS, CONFIG, MODEL, SEARCH, SERVERS, Flag, Flags

JSON: Flags = {"--json": Flag("json", "json", "print JSON")}


@dataclass(frozen=True)
class Subcommand:
    """A subcommand: what it does, its function from overrides to an exit code, its flags and an example."""

    about: str
    run: Callable[[Arguments], int]
    flags: Flags = field(default_factory=dict)
    example: str = ""


def function_of(command: Callable[..., None]) -> Callable[[Arguments], int]:
    """The function behind one of the `ng_*` commands."""
    function: Callable[[Arguments], int] = command.__wrapped__  # type: ignore[attr-defined]
    return function


def _collect(arguments: Arguments) -> int:
    """`--no-serve` collects from servers that run. Without it, servers are started and stopped."""
    rest = [argument for argument in arguments if argument != "+no_serve=true"]
    serves = rest == arguments
    return function_of(eval_commands.ng_e2e_collect_rollouts if serves else eval_commands.ng_collect_rollouts)(rest)


def _test(arguments: Arguments) -> int:
    return function_of(commands.ng_test if arguments else commands.ng_test_all)(arguments)


def _packages(arguments: Arguments) -> int:
    return function_of(commands.ng_pip_list)(
        ["+format=json" if argument == "--json" else argument for argument in arguments]
    )


def _prepare(arguments: Arguments) -> int:
    """Ludus has no benchmarks, and does not run the scripts of those in a checkout."""
    from ludus_nemo_gym.config import read_config

    tree = read_config(arguments, check=False).tree
    if not tree:
        raise UserError("no benchmark is named", "Add --benchmark NAME")
    scripts = [str(script) for script in _values(tree, "prepare_script")]
    hint = f"Run it yourself: python {scripts[0]}" if scripts else "Its data needs no preparation by a script"
    raise UserError("Ludus does not run the code of a benchmark", hint)


def _values(tree: object, key: str) -> list[object]:
    if isinstance(tree, dict):
        inner = [value for child in tree.values() for value in _values(child, key)]
        return [tree[key], *inner] if key in tree else inner
    return [value for child in tree for value in _values(child, key)] if isinstance(tree, list) else []


_ENTRYPOINT: Flags = {
    "--resources-server": Flag("entrypoint", "entrypoint", "the name of an environment"),
}
_HF: Flags = {
    "--storage": Flag("storage", help="hf, the only storage here"),
    "--repo-id": Flag("repo_id", help="the dataset's repository, ORG/NAME"),
    "--artifact": Flag("artifact_fpath", help="the file's name there"),
    "--split": Flag("split", help="the split: the file SPLIT.jsonl"),
}


def _on_hub(command: Callable[..., None]) -> Callable[[Arguments], int]:
    """A command about Hugging Face, the only storage."""

    def run(arguments: Arguments) -> int:
        storage = [argument.partition("=")[2] for argument in arguments if argument.startswith("++storage=")]
        if storage not in ([], ["'hf'"]):
            raise UserError(f"Ludus has no storage {storage[-1]}", "Use --storage hf")
        return function_of(command)([argument for argument in arguments if not argument.startswith("++storage=")])

    return run


SUBCOMMANDS: dict[str, Subcommand] = {
    "env start": Subcommand(
        "Start servers, and keep them running until Ctrl-C.",
        function_of(commands.ng_run),
        {**COMPONENTS, **MODEL},
        "gym env start --resources-server mcqa --model-type openai_model",
    ),
    "env status": Subcommand(
        "Show the running servers.", function_of(commands.ng_status), JSON, "gym env status --json"
    ),
    "env resolve": Subcommand(
        "Print the merged configuration, without secrets.",
        function_of(commands.ng_dump_config),
        {**COMPONENTS, **MODEL},
        "gym env resolve --resources-server mcqa",
    ),
    "env validate": Subcommand(
        "Check a configuration. Starts nothing.",
        function_of(commands.ng_validate),
        {**COMPONENTS, **MODEL},
        "gym env validate --resources-server mcqa --model-type openai_model",
    ),
    "env init": Subcommand(
        "Create a small working environment in a new folder.",
        function_of(commands.ng_init_resources_server),
        _ENTRYPOINT,
        "gym env init --resources-server my_game",
    ),
    "env test": Subcommand(
        "Run the tests of an environment, or of all of yours.",
        _test,
        {**_ENTRYPOINT, **SEARCH},
        "gym env test --resources-server my_game",
    ),
    "env packages": Subcommand(
        "List the installed packages, which all environments share.",
        _packages,
        {
            **_ENTRYPOINT,
            **SEARCH,
            "--outdated": Flag("outdated", "switch", "only packages with newer versions"),
            **JSON,
        },
        "gym env packages --json",
    ),
    "eval run": Subcommand(
        "Collect verified rollouts. Starts servers for it unless --no-serve is given.",
        _collect,
        {
            "--no-serve": Flag("no_serve", "switch", "collect from servers that run already"),
            **COLLECT,
            **COMPONENTS,
            **MODEL,
        },
        "gym eval run --no-serve --agent mcqa_simple_agent --input rows.jsonl --output results/rollouts.jsonl",
    ),
    "eval aggregate": Subcommand(
        "Merge the rollouts of several collections.",
        function_of(eval_commands.ng_aggregate_rollouts),
        {
            **CONFIG,
            "--input-glob": Flag("input_glob", help="the files, as patterns with commas between them"),
            "--output": COLLECT["--output"],
        },
        "gym eval aggregate --input-glob 'results/shard_*.jsonl' --output results/all.jsonl",
    ),
    "eval compare": Subcommand(
        "Compare the metrics of two collections. `ludus compare` also says what may be chance.",
        eval_commands.compare_runs,
        {
            "--baseline": Flag("baseline_fpath", help="the baseline's X_aggregate_metrics.json"),
            "--candidate": Flag("candidate_fpath", help="the candidate's X_aggregate_metrics.json"),
            "--output-dir": Flag("output_dirpath", help="the folder for compare_report.md and compare_report.json"),
        },
        "gym eval compare --baseline results/a_aggregate_metrics.json "
        "--candidate results/b_aggregate_metrics.json --output-dir results",
    ),
    "eval profile": Subcommand(
        "Compute the rewards of each task.",
        function_of(eval_commands.ng_reward_profile),
        {
            "--inputs": Flag("materialized_inputs_jsonl_fpath", help="the collection's X_materialized_inputs.jsonl"),
            "--rollouts": Flag("rollouts_jsonl_fpath", help="the collection's rollouts"),
        },
        "gym eval profile --inputs results/r_materialized_inputs.jsonl --rollouts results/r.jsonl",
    ),
    "eval reverify": Subcommand(
        "Judge stored rollouts again, without asking a model.",
        function_of(eval_commands.ng_reverify),
        {
            "--inputs": Flag("materialized_inputs_jsonl_fpath", help="the collection's X_materialized_inputs.jsonl"),
            "--rollouts": Flag("rollouts_jsonl_fpath", help="the rollouts to judge again"),
            "--output": COLLECT["--output"],
            "--limit": COLLECT["--limit"],
            "--concurrency": COLLECT["--concurrency"],
            "--resume": Flag("resume_from_cache", "switch", "continue an output that is not complete"),
            "--overwrite": Flag("overwrite", "switch", "replace an output that exists"),
            "--force": Flag("force", "switch", "also judge where a server cannot judge again; prefix unsafe_"),
            "--judge-failed-only": Flag("judge_failed_only", "switch", "judge only what the judge failed on"),
            "--disable-aggregation": COLLECT["--disable-aggregation"],
            **COMPONENTS,
            **MODEL,
        },
        "gym eval reverify --resources-server mcqa --inputs results/r_materialized_inputs.jsonl "
        "--rollouts results/r.jsonl --output results/again.jsonl",
    ),
    "eval prepare": Subcommand(
        "Say how to prepare the data of a benchmark.",
        _prepare,
        {**CONFIG, "--benchmark": COMPONENTS["--benchmark"], **SEARCH},
        "gym eval prepare --benchmark gpqa",
    ),
    "dataset collate": Subcommand(
        "Check the datasets of agents, and collate them.",
        function_of(dataset_commands.ng_prepare_data),
        {
            **CONFIG,
            **SERVERS,
            **SEARCH,
            "--mode": Flag("mode", help="train_preparation or example_validation"),
            "--output-dir": Flag("output_dirpath", help="the folder for the collated files"),
            "--download": Flag("should_download", "switch", "download missing files"),
        },
        "gym dataset collate --resources-server mcqa --mode example_validation --output-dir data/mcqa",
    ),
    "dataset render": Subcommand(
        "Build the prompts of rows from a template.",
        function_of(dataset_commands.ng_materialize_prompts),
        {key: COLLECT[key] for key in ("--input", "--prompt-config", "--output")} | SEARCH,
        "gym dataset render --input rows.jsonl --prompt-config prompt.yaml --output with_prompts.jsonl",
    ),
    "dataset download": Subcommand(
        "Download a file of a dataset from Hugging Face.",
        _on_hub(dataset_commands.ng_download_dataset_from_hf),
        {
            **_HF,
            "--output": Flag("output_fpath", help="the file to write"),
            "--output-dir": Flag("output_dirpath", help="the folder to write it to"),
        },
        "gym dataset download --repo-id ORG/NAME --split train --output-dir data",
    ),
    "dataset upload": Subcommand(
        "Upload a file to a dataset on Hugging Face.",
        _on_hub(dataset_commands.ng_upload_dataset_to_hf),
        {
            **_HF,
            "--input": COLLECT["--input"],
            "--create-pr": Flag("create_pr", "switch", "open a pull request instead of a commit"),
        },
        "gym dataset upload --repo-id ORG/NAME --input train.jsonl --split train",
    ),
}
