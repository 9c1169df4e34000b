"""The `ng_*` commands as a user types them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import interruptible
import pytest
from gym_commands import FEW_PLUGINS
from ludus_nemo_gym import commands, gym
from servers import Server
from waiting import CEILING

KEY = "your-openai-api-key"
PATHS = (
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml,"
    "responses_api_models/openai_model/configs/openai_model.yaml"
)
QUERY = {
    "responses_create_params": {
        "input": [
            {"role": "developer", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is the weather in Seattle?"},
        ]
    }
}


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(name: str, *arguments: str) -> list[str]:
    """The command line that runs an entry point."""
    module = "ludus_nemo_gym.client" if name == "main" else "ludus_nemo_gym.commands"
    return [sys.executable, "-c", f"from {module} import {name}; {name}()", *arguments]


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    variables["PYTEST_ADDOPTS"] = " ".join(FEW_PLUGINS)
    return forked.run(command(name, *arguments), capture_output=True, text=True, env=variables)


def called(name: str, *arguments: str) -> int:
    """The exit code of a command that is called in this process, which is faster."""
    with pytest.raises(SystemExit) as ended:
        getattr(commands, name)(list(arguments))
    return int(ended.value.code or 0)


def gym_called(*arguments: str) -> int:
    """The exit code of `gym`, called in this process."""
    with pytest.raises(SystemExit) as ended:
        gym.main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture
def env_yaml(server: Server) -> str:
    """The quickstart's file, with the URL of a test server instead of OpenAI's."""
    text = f"policy_base_url: {server.url}\npolicy_api_key: {KEY}\npolicy_model_name: gpt-4.1-2025-04-14\n"
    Path("env.yaml").write_text(text)
    return text


@pytest.fixture
def started(env_yaml: str) -> Iterator[str]:
    """`ng_run` as in the quickstart, on any free port; what tells other commands where that is."""
    process = interruptible.start(
        command("ng_run", f"+config_paths=[{PATHS}]", "++head_server.port=0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while "ready" not in said and (line := process.stdout.readline()):
        said += line
    try:
        assert "ready" in said, said
        found = re.search(r"head +head +http://127.0.0.1:(\d+)", said)
        assert found is not None, said
        yield f"++head_server.port={found[1]}"
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=CEILING)
    assert process.returncode == 0, rest
    assert KEY not in said + rest


def test_the_quickstart_works(started: str, server: Server):
    Path("weather_query.jsonl").write_text(json.dumps(QUERY) + "\n")
    done = run(
        "ng_collect_rollouts",
        "+agent_name=example_single_tool_call_simple_agent",
        "+input_jsonl_fpath=weather_query.jsonl",
        "+output_jsonl_fpath=weather_rollouts.jsonl",
        started,
    )
    assert done.returncode == 0, done.stderr
    (rollout,) = [json.loads(line) for line in Path("weather_rollouts.jsonl").read_text().splitlines()]
    assert rollout["reward"] == 1.0
    assert rollout["responses_create_params"]["input"] == QUERY["responses_create_params"]["input"]
    assert rollout["response"]["output"][-1]["role"] == "assistant"
    assert f"authorization: bearer {KEY}" in server.headers[0].decode().lower()
    assert server.bodies[0]["model"] == "gpt-4.1-2025-04-14"
    status = run("ng_status", started, "--json")
    assert status.returncode == 0, status.stderr
    names = {each["name"] for each in json.loads(status.stdout)["servers"]}
    assert names == {"example_single_tool_call", "example_single_tool_call_simple_agent", "policy_model"}
    client = run("main", started)
    assert client.returncode == 0, client.stderr
    assert json.loads(client.stdout)[-1]["role"] == "assistant"


def test_a_dry_run_prints_the_servers_and_no_key(env_yaml: str, capsys: pytest.CaptureFixture[str]):
    assert called("ng_run", f"+config_paths=[{PATHS}]", "+dry_run=true") == 0
    printed = capsys.readouterr().out
    assert re.search(r"policy_model +openai gpt-4.1-2025-04-14 +127.0.0.1:any port", printed)
    assert re.search(r"head +.*127.0.0.1:11000", printed)
    assert KEY not in printed


LOCAL = "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/local/configs/local.yaml"


@pytest.mark.parametrize("command", ["ng_run", "gym env start"])
@pytest.mark.parametrize(("server", "block"), [("the head", "head_server"), ("mcqa", "mcqa.resources_servers.mcqa")])
def test_a_port_in_use_is_one_line_that_names_the_override(
    command: str, server: str, block: str, capsys: pytest.CaptureFixture[str]
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = [f"+config_paths=[{LOCAL}]", "++head_server.port=0", f"++{block}.port={port}"]
        code = called(command, *arguments) if command == "ng_run" else gym_called("env", "start", *arguments)
    assert code == 2
    assert capsys.readouterr().err == (
        f"error: {server} cannot listen on 127.0.0.1:{port}: Address already in use. "
        f"Choose another port with ++{block}.port=N\n"
    )


def test_a_host_of_another_machine_is_one_line_that_names_the_override(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("LUDUS_TOKEN", "a-token-for-tests-only")
    assert called("ng_run", f"+config_paths=[{LOCAL}]", "++head_server={host: 192.0.2.1, port: 0}") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: the head cannot listen on 192.0.2.1:0: ")
    assert said.endswith(". Correct ++head_server.host=HOST\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        "name: mcqa\nversion: 0.1.0\nkind: environment\nreward: {range: [0, 1]}\nauthors: [someone]\n",
        "system: You are helpful.\nuser: '{question}'\n",
    ],
)
@pytest.mark.parametrize("arguments", [["ng_run", "+dry_run=true"], ["ng_validate"]])
def test_a_file_that_is_no_configuration_is_refused_in_one_line(
    arguments: list[str], content: str, capsys: pytest.CaptureFixture[str]
):
    Path("manifest.yaml").write_text(content)
    assert called(*arguments, f"+config_paths=[manifest.yaml,{LOCAL}]") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: manifest.yaml is not a configuration: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        "policy_model_name: a-name\n",
        "wandb_project: a-project\n",
        "subject: biology\nmcqa: {resources_servers: {mcqa: {description: 'About ${subject}'}}}\n",
        "config_paths: [more.yaml]\nunused: 1\n",
        "sandbox: {image: python}\n",
        "{}\n",
    ],
)
def test_a_file_of_settings_for_other_files_is_a_configuration(content: str, capsys: pytest.CaptureFixture[str]):
    Path("more.yaml").write_text("mcqa: {resources_servers: {mcqa: {description: 'About ${subject}'}}}\n")
    Path("settings.yaml").write_text(content)
    Path("subject.yaml").write_text("subject: biology\n")
    assert called("ng_run", f"+config_paths=[settings.yaml,subject.yaml,more.yaml,{LOCAL}]", "+dry_run=true") == 0


def test_missing_values_are_one_line_that_says_what_to_type(capsys: pytest.CaptureFixture[str]):
    assert called("ng_run", f"+config_paths=[{PATHS}]") == 2
    printed = capsys.readouterr().err
    assert "Type '++policy_base_url=VALUE' '++policy_model_name=VALUE', or write them into env.yaml" in printed
    assert "Write policy_api_key into env.yaml, or set POLICY_API_KEY" in printed
    assert "++policy_api_key" not in printed
    assert printed.count("\n") == 1


def test_the_configuration_is_printed_without_secrets(env_yaml: str, capsys: pytest.CaptureFixture[str]):
    import yaml

    assert called("ng_dump_config", f"+config_paths=[{PATHS}]", f"+header='Bearer {KEY}'") == 0
    printed = capsys.readouterr().out
    assert KEY not in printed
    tree = yaml.safe_load(printed)
    assert tree["header"] == "Bearer ***"
    assert tree["policy_model"]["responses_api_models"]["openai_model"]["openai_api_key"] == "***"
    assert tree["policy_model"]["responses_api_models"]["openai_model"]["openai_model"] == "gpt-4.1-2025-04-14"


def test_the_policy_can_be_set_by_variables_and_env_yaml_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, value in (("BASE_URL", "http://127.0.0.1:1/v1"), ("API_KEY", KEY), ("MODEL_NAME", "from-a-variable")):
        monkeypatch.setenv(f"POLICY_{name}", value)
    assert called("ng_run", f"+config_paths=[{PATHS}]", "+dry_run=true") == 0
    printed = capsys.readouterr()
    assert "openai from-a-variable" in printed.out
    assert KEY not in printed.out + printed.err
    Path("env.yaml").write_text("policy_model_name: from-the-file\n")
    assert called("ng_run", f"+config_paths=[{PATHS}]", "+dry_run=true") == 0
    assert "openai from-the-file" in capsys.readouterr().out


def test_the_hint_of_ng_status_names_commands_of_this_package(capsys: pytest.CaptureFixture[str]):
    assert called("ng_status", "++head_server.port=1") == 2
    printed = capsys.readouterr().err
    assert "gym env start" in printed
    assert "ludus serve" not in printed
    assert printed.count("Start servers with") == 1


def test_an_incomplete_configuration_can_be_printed(capsys: pytest.CaptureFixture[str]):
    assert called("ng_dump_config", f"+config_paths=[{PATHS}]") == 0
    assert "openai_api_key: ${policy_api_key}" in capsys.readouterr().out


def test_a_new_environment_passes_its_tests_and_can_be_launched(capsys: pytest.CaptureFixture[str]):
    assert called("ng_init_resources_server", "+entrypoint=resources_servers/corner_shop") == 0
    assert Path("resources_servers/corner_shop/environment.yaml").is_file()
    start = capsys.readouterr().out.splitlines()[-1].split()
    done = run("ng_test", "+entrypoint=resources_servers/corner_shop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    capsys.readouterr()
    paths = "resources_servers/corner_shop/configs/corner_shop.yaml,responses_api_models/local/configs/local.yaml"
    assert called("ng_run", f"+config_paths=[{paths}]", "+dry_run=true") == 0
    launched = capsys.readouterr().out
    assert "corner_shop_simple_agent" in launched
    assert start[0] == "gym"
    assert gym_called(*start[1:], "+dry_run=true") == 0
    assert capsys.readouterr().out == launched


def test_a_new_environment_elsewhere_is_offered_only_commands_that_find_it(capsys: pytest.CaptureFixture[str]):
    assert called("ng_init_resources_server", "+entrypoint=mine/corner_shop") == 0
    created, _, commands = capsys.readouterr().out.partition("next:\n")
    assert all(Path("mine/corner_shop", line.strip()).is_file() for line in created.splitlines()[1:])
    assert all(" ./mine/corner_shop" in line for line in commands.splitlines())


@pytest.mark.usefixtures("few_plugins")
def test_ng_test_fails_if_a_test_fails():
    called("ng_init_resources_server", "+entrypoint=resources_servers/corner_shop")
    (test,) = Path("resources_servers/corner_shop").glob("**/test_*.py")
    test.write_text("def test_it():\n    assert False\n")
    assert called("ng_test", "+entrypoint=resources_servers/corner_shop") == 1


def test_ng_viewer_shows_rollouts(capsys: pytest.CaptureFixture[str]):
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is cold."}]}
    row = {**QUERY, "response": {"output": [message]}, "reward": 1.0, "_ng_task_index": 0, "_ng_rollout_index": 0}
    Path("r.jsonl").write_text(json.dumps(row) + "\n")
    assert called("ng_viewer", "+jsonl_fpath=r.jsonl") == 0
    assert "What is the weather" in capsys.readouterr().out
    assert called("ng_viewer", "+jsonl_fpath=r.jsonl", "+number=1") == 0
    assert "It is cold." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ng_run",), "names no server"),
        (("ng_run", "config.yaml"), "config.yaml must look like +key=value"),
        (("ng_run", "+config_paths=[nothing.yaml]"), "there is no config nothing.yaml"),
        (("ng_test",), "entrypoint is missing. Add +entrypoint=VALUE"),
        (("ng_test", "+entrypoint=resources_servers/mcq"), "there is no environment or agent mcq. Did you mean mcqa?"),
        (("ng_test", "+entrypoint=../../"), "names no resources server"),
        (("ng_init_resources_server", "+entrypoint=resources_servers/My-Game"), "is not a valid environment name"),
        (("ng_status", "++head_server.port=1"), "cannot reach http://127.0.0.1:1"),
        (("ng_viewer", "+jsonl_fpath=none.jsonl"), "cannot read none.jsonl"),
        (("ng_prepare_data", "+mode=example_validation"), "output_dirpath is missing"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
):
    assert called(*arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("name", sorted(commands.COMMANDS))
@pytest.mark.parametrize("how", ["+help=true", "--help", "+h=true"])
def test_every_command_prints_its_help(name: str, how: str, capsys: pytest.CaptureFixture[str]):
    assert called(name, how) == 0
    printed = capsys.readouterr().out
    assert printed.strip()
    assert name in ("ng_help", "ng_version") or f"Example: {name} " in printed


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]):
    assert called("ng_help") == 0
    printed = capsys.readouterr().out
    for name in commands.COMMANDS:
        assert name in printed
    assert called("ng_version") == 0


def test_ludus_does_not_import_this_package():
    import ludus

    importing = re.compile(r"^\s*(from|import) (ludus_nemo_gym|nemo_gym)\b", re.MULTILINE)
    root = Path(ludus.__file__).parent
    assert [str(path) for path in root.rglob("*.py") if importing.search(path.read_text())] == []


def test_a_bug_is_one_line_and_a_traceback_with_debug(monkeypatch: Any, capsys: pytest.CaptureFixture[str]):
    def broken(*given: Any, **more: Any) -> Any:
        raise RuntimeError("boom")

    monkeypatch.setattr(commands, "read_config", broken)
    assert called("ng_dump_config") == 70
    assert "RuntimeError: boom. This is a bug" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="boom"):
        commands.ng_dump_config(["--debug"])
