"""The `ng_*` commands about servers and environments, and the table of all commands. Ludus does the work."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.dataset_commands import (
    ng_download_dataset_from_hf,
    ng_materialize_prompts,
    ng_prepare_data,
    ng_upload_dataset_to_hf,
)
from ludus_nemo_gym.entry_points import (
    Arguments,
    entry_point,
    optional_number,
    options,
    print_columns,
    print_notes,
    required_text,
)
from ludus_nemo_gym.eval_commands import (
    ng_aggregate_rollouts,
    ng_collect_rollouts,
    ng_e2e_collect_rollouts,
    ng_reverify,
    ng_reward_profile,
)
from ludus_nemo_gym.own_tests import run_tests

if TYPE_CHECKING:
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

    launch = wire(read_config(arguments, only_servers=True))
    if launch.dry_run:
        plan_of(launch)
        print_columns([("server", "what", "address"), *_table(launch)])
    print_notes(launch.notes)
    if not launch.dry_run:
        start(launch)
    return 0


@entry_point
def ng_init_resources_server(arguments: Arguments) -> int:
    """Create a small working environment in a new folder.

    Example: ng_init_resources_server +entrypoint=resources_servers/my_game
    """
    from ludus.cli.new import new
    from ludus_nemo_gym.search_paths import environment_folder, normal

    path = Path(normal(required_text(options(arguments, {"entrypoint"}), "entrypoint")))
    new(path.name, path.parent)
    if environment_folder(path.name) == path:  # elsewhere only its path finds it, which the other commands take
        print(f"  gym env start --resources-server {path.name} --model-type local")
    return 0


@entry_point
def ng_test(arguments: Arguments) -> int:
    """Run the tests of an environment, or of a server or an agent whose code is an app.py.

    Example: ng_test +entrypoint=resources_servers/mcqa
    """
    from ludus_nemo_gym.names import AGENTS
    from ludus_nemo_gym.search_paths import all_names, entry_folder, own_code

    entrypoint = required_text(options(arguments, {"entrypoint"}), "entrypoint")
    name, folder = entry_folder(entrypoint)
    if folder is None:
        raise UserError(
            f"there is no environment or agent {name}", did_you_mean(name, [*all_names(), *own_code(AGENTS)])
        )
    if not any(folder.rglob("test_*.py")):
        raise UserError(
            f"{folder} has no tests",
            "Add a test_*.py there; built-in environments have tests in a source checkout only",
        )
    return run_tests(folder)


@entry_point
def ng_test_all(arguments: Arguments) -> int:
    """Run the tests of all your environments, servers and agents.

    Example: ng_test_all ++fail_on_total_and_test_mismatch=true
    """
    from ludus_nemo_gym.names import ENVIRONMENTS, KINDS
    from ludus_nemo_gym.search_paths import own_code, own_environments

    options(arguments, {"fail_on_total_and_test_mismatch"})
    servers = [folder for kind in (*KINDS, ENVIRONMENTS) for folder in own_code(kind).values()]
    folders = dict.fromkeys([*own_environments(), *servers])
    tested = [folder for folder in folders if any(folder.rglob("test_*.py"))]
    if not tested:
        raise UserError(
            "there is no environment with tests here", "Create one with: gym env init --resources-server NAME"
        )
    return max(map(run_tests, tested))


@entry_point
def ng_status(arguments: Arguments) -> int:
    """Show the running servers and their state.

    Example: ng_status ++head_server.port=11000
    """

    from ludus.cli.commands import Exit
    from ludus.cli.status import status
    from ludus_nemo_gym.agent_servers import START
    from ludus_nemo_gym.head import TOKEN, head_url

    as_json = "--json" in arguments
    tree = options([argument for argument in arguments if argument != "--json"], {"json"})
    try:
        status(head_url(tree), TOKEN, as_json or bool(tree.get("json")))
    except Exit as end:
        return end.exit_code
    except UserError as error:
        raise UserError(str(error).partition(". Start servers with")[0], START) from error
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
def ng_validate(arguments: Arguments) -> int:
    """Check a configuration: its files, its references, its missing values and its servers. Starts nothing.

    Example: ng_validate "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"
    """
    from ludus.serve.site import check
    from ludus_nemo_gym.starting import plan_of
    from ludus_nemo_gym.wiring import wire

    launch = wire(read_config(arguments, only_servers=True))
    plan = plan_of(launch)
    check(plan)
    print_notes(launch.notes)
    print(f"valid: {len(plan.servers)} servers")
    return 0


@entry_point
def ng_pip_list(arguments: Arguments) -> int:
    """List the installed packages. All environments share one installation.

    Example: ng_pip_list +format=json

    +outdated=true lists only packages that have a newer version.
    """
    tree = options(arguments, {"entrypoint", "format", "outdated"})
    flags = ["--format=json"] if tree.get("format") == "json" else []
    flags += ["--outdated"] if tree.get("outdated") else []
    return subprocess.run([sys.executable, "-m", "pip", "list", *flags], check=False).returncode


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
    command.__name__: command
    for command in (
        ng_run,
        ng_collect_rollouts,
        ng_e2e_collect_rollouts,
        ng_aggregate_rollouts,
        ng_reward_profile,
        ng_reverify,
        ng_prepare_data,
        ng_materialize_prompts,
        ng_download_dataset_from_hf,
        ng_upload_dataset_to_hf,
        ng_init_resources_server,
        ng_test,
        ng_test_all,
        ng_status,
        ng_dump_config,
        ng_validate,
        ng_pip_list,
        ng_viewer,
        ng_version,
        ng_help,
    )
}


def _table(launch: Launch) -> list[tuple[str, str, str]]:
    rows = [("head", "lists the other servers", f"{launch.head_host}:{launch.head_port or 'any port'}")]
    return rows + [
        (server.name, server.description(), f"{server.host}:{server.port or 'any port'}") for server in launch.servers
    ]
