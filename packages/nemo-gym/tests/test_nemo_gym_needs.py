"""`ludus doctor FOLDER` and `ludus envs --nemo-gym` say what servers need, before any of their code runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from hosted_agents import configure_agent, write_agent
from hosted_servers import row, write_server
from ludus_nemo_gym.hosted.agent import HostedAgent

from ludus.adapter import Need, needs
from ludus.sandbox.choice import survey

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

SERVER = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""
#: Code that must never run.
FORBIDDEN = "raise SystemExit('this code must not run')\n"


def server(root: Path, code: str = "", name: str = "one", **options: Any) -> Path:
    """A server whose file starts with some code."""
    return write_server(root, name, f"{code}\n{FORBIDDEN}\n{SERVER}", [row("?"), row("!")], **options)


def needed(folder: Path) -> dict[str, Need]:
    return {need.name: need for need in needs(str(folder))}


def ludus(*arguments: str, columns: int = 200) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "ludus", *arguments]
    return forked.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_a_server_without_needs_runs_here(tmp_path: Path) -> None:
    done = ludus("doctor", str(server(tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith("resources_servers/one: runs here")


def test_one_command_installs_all_missing_packages(tmp_path: Path) -> None:
    files = {"requirements.txt": "-e nemo-gym[dev] @ ../../\nno-such-a[x]>=1,<2\npydantic\nno_such_b==3  # why\n"}
    folder = server(tmp_path, "import no_such_a\nfrom no_such_b.part import name", files=files)
    (need,) = needs(str(folder))
    assert (need.name, need.met) == ("packages", False)
    assert need.why == "not installed: no-such-a[x]>=1,<2, no_such_b==3"
    assert need.commands == ("pip install 'no-such-a[x]>=1,<2' no_such_b==3",)


def test_installed_requirements_are_met(tmp_path: Path) -> None:
    need = needed(server(tmp_path, files={"requirements.txt": "pydantic>=2\norjson\n"}))["packages"]
    assert (need.met, need.why) == (True, "2 requirements installed")


def test_a_package_that_nemo_gym_installs_itself_needs_no_requirement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    need = needed(server(tmp_path, "import mlflow"))["packages"]
    assert need.commands == ("pip install mlflow",)


def test_an_import_that_nothing_explains_is_named_without_a_command(tmp_path: Path) -> None:
    folder = server(tmp_path, "import no_such_c")
    line = 1 + (folder / "app.py").read_text().splitlines().index("import no_such_c")
    need = needed(folder)["imports"]
    assert need.why == f"app.py:{line} imports no_such_c: not installed, and no requirement names it"
    assert need.commands == ()


def test_a_name_that_our_nemo_gym_lacks_is_said(tmp_path: Path) -> None:
    need = needed(server(tmp_path, "from nemo_gym.no_such_part import name"))["imports"]
    assert "imports nemo_gym.no_such_part, which ludus-nemo-gym does not have" in need.why


def test_only_code_that_the_server_reaches_counts(tmp_path: Path) -> None:
    files = {
        "prepare.py": "import no_such_a",
        "tests/test_one.py": "import no_such_b",
        "util/__init__.py": "from .inner import value",
        "util/inner.py": "import no_such_c",
    }
    code = """
from util import value
try:
    import no_such_d
except ImportError:
    no_such_d = None
if TYPE_CHECKING:
    import no_such_e
"""
    need = needed(server(tmp_path, code, files=files))["imports"]
    assert need.why == "util/inner.py:1 imports no_such_c: not installed, and no requirement names it"


def test_code_of_another_server_counts_where_it_is_imported(tmp_path: Path) -> None:
    server(tmp_path, "import no_such_c", name="base")
    need = needed(server(tmp_path, "from resources_servers.base.app import Server as Base"))["imports"]
    assert need.why.startswith("resources_servers/base/app.py:")


def test_a_collision_names_both_versions_and_the_commands_for_an_environment_of_its_own(tmp_path: Path) -> None:
    files = {"requirements.txt": "nemo-gym\npydantic<2\nno-such-a\n"}
    found = needed(server(tmp_path, files=files))
    assert found["versions"].why.startswith("requirements.txt:2 wants pydantic<2, and pydantic 2.")
    assert found["packages"].commands == ()
    create, core, package, theirs, use = found["versions"].commands
    place = tmp_path / "resources_servers" / "one" / ".venv"
    assert create == f"python3 -m venv {place}"
    assert core.startswith(f"{place}/bin/python -m pip install")
    assert "nemo-gym[servers]" in package
    assert theirs == f"{place}/bin/python -m pip install 'pydantic<2' no-such-a"
    assert use == f"ludus collect {place.parent} --set resources.python={place}/bin/python"


def test_another_python_is_a_collision(tmp_path: Path) -> None:
    files = {"pyproject.toml": '[project]\nname = "one"\nrequires-python = ">=4"\n'}
    need = needed(server(tmp_path, "import pandas", files=files))["versions"]
    assert "it wants Python >=4" in need.why
    assert need.commands[0].startswith("uv venv --seed --python '>=4' ")
    assert need.commands[3].endswith(" -m pip install pandas")


def test_an_environment_in_the_folder_meets_the_requirements(tmp_path: Path) -> None:
    folder = server(tmp_path, "import only_there", files={"requirements.txt": "only-there==1.0\n"})
    assert needed(folder)["packages"].met is False
    site = folder / ".venv" / "lib" / "python3.11" / "site-packages"
    for name in ("only_there", "ludus_nemo_gym"):
        (site / f"{name}-1.0.dist-info").mkdir(parents=True)
        (site / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for module in ("only_there", "fastapi", "itsdangerous", "aiohttp", "pydantic"):
        (site / f"{module}.py").touch()
    need = needed(folder)["packages"]
    assert (need.met, need.why) == (True, f"1 requirement installed in {folder}/.venv")
    assert need.commands == (f"ludus collect {folder} --set resources.python={folder}/.venv/bin/python",)


def test_a_judge_without_a_model_says_how_to_set_one(tmp_path: Path) -> None:
    judge = {"judge_model_server": {"type": "responses_api_models", "name": "???"}}
    folder = server(tmp_path, settings=judge)
    (need,) = needs(str(folder))
    assert (need.name, need.met) == ("judge", False)
    assert need.commands == (f"ludus collect {folder} --set resources.judge=SPEC",)


def test_a_simulated_user_beside_a_judge_has_a_setting_of_its_own(tmp_path: Path) -> None:
    model = {"type": "responses_api_models"}
    settings = {"judge_model_server": {**model, "name": "grader"}, "user_model_server": {**model, "name": "customer"}}
    found = needed(server(tmp_path, settings=settings))
    assert found["judge"].commands[0].endswith("--set resources.models.grader=SPEC")
    assert found["simulated user"].commands[0].endswith("--set resources.models.customer=SPEC")


def test_settings_without_a_value_are_listed_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"size": "???", "tavily_api_key": "${tavily_api_key}", "home": "${oc.env:NO_SUCH_VARIABLE}"}
    folder = server(tmp_path, settings=settings)
    found = needed(folder)
    assert found["settings"].why == "no value for size, tavily_api_key, home"
    assert found["settings"].commands == (
        "echo 'tavily_api_key: VALUE' >> env.yaml",
        "export NO_SUCH_VARIABLE=VALUE",
        f"ludus collect {folder} --set resources.size=VALUE",
    )
    assert found["network"].met is False
    (tmp_path / "env.yaml").write_text("tavily_api_key: sk-secret\n")
    found = needed(folder)
    assert "tavily" not in found["settings"].why
    assert found["network"].met is None
    assert "sk-secret" not in str(found)


@pytest.mark.parametrize(
    ("code", "clue"),
    [
        ("import requests", "imports requests"),
        ("from urllib.request import urlopen", "uses urlopen"),
        ("from huggingface_hub import hf_hub_download", "uses hf_hub_download"),
        ("import aiohttp\nsession = aiohttp.ClientSession()", "uses ClientSession"),
    ],
)
def test_calls_of_the_network_are_a_guess_and_do_not_fail(tmp_path: Path, code: str, clue: str) -> None:
    need = needed(server(tmp_path, code))["network"]
    assert clue in need.why
    assert "a guess" in need.why
    assert need.met is None


def test_the_exceptions_of_aiohttp_are_no_network(tmp_path: Path) -> None:
    assert "network" not in needed(server(tmp_path, "from aiohttp import ClientError"))


@pytest.mark.parametrize(
    ("settings", "met"),
    [
        ({"sandbox_provider": {"local": {}}}, True),
        ({"sandbox_provider": {"docker": {}}}, False),
        ({"sandbox_provider": {"ecs_fargate": {}}}, False),
        ({}, None),
    ],
)
def test_a_sandbox_is_met_if_its_provider_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], met: bool | None
) -> None:
    survey()  # what works on this machine is found out once
    monkeypatch.setenv("PATH", str(tmp_path))
    need = needed(server(tmp_path, "from nemo_gym.sandbox import AsyncSandbox", settings=settings))["container"]
    assert need.met is met


def test_a_program_for_containers_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import subprocess\nsubprocess.run(['apptainer', 'exec', 'image.sif'])"
    folder = server(tmp_path, code)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needed(folder)["container"].why.endswith("starts apptainer, and apptainer is not installed")
    (tmp_path / "apptainer").touch(0o755)
    assert needed(folder)["container"].met


@pytest.mark.parametrize(
    ("code", "requirements", "met"),
    [
        ("", "vllm\n", False),
        ("device = 'cuda'", "", False),
        ("device = 'cuda' if is_available() else 'cpu'", "torch\n", None),
    ],
)
def test_a_gpu_is_guessed_from_packages_and_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, requirements: str, met: bool | None
) -> None:
    monkeypatch.setattr("ludus_nemo_gym.hosted.clues._has_gpu", lambda: False)
    assert needed(server(tmp_path, code, files={"requirements.txt": requirements}))["GPU"].met is met


def test_ray_is_installed_with_our_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    need = needed(server(tmp_path, "import ray"))["ray"]
    assert need.met is False
    assert "[ray]" in need.commands[0]


def test_missing_files_of_datasets_are_needed_only_if_none_exists(tmp_path: Path) -> None:
    origin = {"repo_id": "org/set", "artifact_fpath": "train.jsonl"}
    train = {"name": "train", "jsonl_fpath": "resources_servers/one/data/train.jsonl", "huggingface_identifier": origin}
    folder = server(tmp_path, settings={"datasets": [train]})
    need = needed(folder)["data"]
    assert need.met
    assert need.why.startswith("example is here; missing: ")
    target = folder / "data" / "train.jsonl"
    (command,) = need.commands
    typed = f"ng_download_dataset_from_hf +repo_id=org/set +artifact_fpath=train.jsonl +output_fpath={target}"
    assert command == typed
    (folder / "data" / "example.jsonl").unlink()
    assert needed(folder)["data"].met is False


def test_the_needs_of_an_agent_name_its_own_settings(tmp_path: Path) -> None:
    agent = write_agent(tmp_path, "my_agent", FORBIDDEN)
    (agent / "requirements.txt").write_text("pydantic<2\n")
    found = needed(agent)
    assert "judge" not in found
    assert "--set agent.python=" in found["versions"].commands[-1]


def test_the_policy_of_an_agent_is_no_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = write_agent(tmp_path, "my_agent", FORBIDDEN)
    configure_agent(agent, "one", model="${policy_model_name}", size="${no_such_size}")
    assert needed(agent)["settings"].why == "no value for size"
    config = HostedAgent.Config.model_validate({"source": str(agent), "size": 3})
    assert config.hosting({"policy_model_name": "policy"}).block["model"] == "policy"


def test_a_server_needs_the_agent_that_plays_it(tmp_path: Path) -> None:
    folder = server(tmp_path, agent="my_agent")
    need = needed(folder)["agent"]
    assert need.commands == (f"ludus collect {folder} --set agent.type=simple",)
    agent = write_agent(tmp_path, "my_agent", FORBIDDEN)
    (agent / "configs" / "my_agent.yaml").write_text("another: {}")  # the server's own file configures it
    assert needed(folder)["agent"].met
    (agent / "requirements.txt").write_text("no-such-a\n")
    need = needed(folder)["agent"]
    assert need.why.endswith("plays it and misses: packages")
    assert need.commands == (f"ludus doctor {agent}",)


def test_a_configuration_file_is_examined_in_place_of_the_first_one(tmp_path: Path) -> None:
    folder = server(tmp_path)
    other = folder / "configs" / "other.yaml"
    other.write_text(json.dumps({"one": {"resources_servers": {"one": {"entrypoint": "app.py", "size": "???"}}}}))
    assert "settings" not in needed(folder)
    assert needed(other)["settings"].commands == (f"ludus collect {other} --set resources.size=VALUE",)


def test_json_says_the_same_and_the_exit_status_is_1(tmp_path: Path) -> None:
    folder = server(tmp_path, files={"requirements.txt": "no-such-a\n"})
    done = ludus("doctor", str(folder), "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["runs"]) == (1, False)
    need = {"name": "packages", "met": False, "why": "not installed: no-such-a", "commands": ["pip install no-such-a"]}
    assert report["needs"] == [need]
    shown = ludus("doctor", str(folder))
    assert shown.returncode == 1
    assert "packages        missing  not installed: no-such-a\n      pip install no-such-a\n" in shown.stdout


def test_a_folder_that_no_adapter_knows_is_one_line(tmp_path: Path) -> None:
    done = ludus("doctor", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Name the folder of a server that was written for NeMo Gym" in done.stderr


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    folder = server(tmp_path, files={"app.py": "import os\ndef ("})
    done = ludus("doctor", str(folder))
    assert done.returncode == 2
    assert "app.py:2: " in done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Four servers: one runs, one misses a package, one has bad YAML, one has bad syntax."""
    server(tmp_path, name="good")
    server(tmp_path, name="hungry", files={"requirements.txt": "no-such-a\n"})
    server(tmp_path, name="torn", files={"configs/torn.yaml": "a: [b\n"})
    server(tmp_path, name="wrong", files={"app.py": "def (\n"})
    (tmp_path / "resources_servers" / "no_server").mkdir()
    (tmp_path / "resources_servers" / "README.md").touch()
    return tmp_path


@pytest.mark.parametrize("columns", [60, 200])
def test_all_servers_of_a_checkout_are_listed_and_broken_ones_are_a_line(checkout: Path, columns: int) -> None:
    done = ludus("envs", "--nemo-gym", str(checkout), columns=columns)
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert "packages: not installed: no-such-a" in words
    assert words.count("broken: ") == 2
    assert "not valid YAML" in words
    assert "1 of 4 run here" in words


def test_the_list_as_json_holds_domains_rows_and_needs(checkout: Path) -> None:
    listed = {one["name"]: one for one in json.loads(ludus("envs", "--nemo-gym", str(checkout), "--json").stdout)}
    assert list(listed) == ["good", "hungry", "torn", "wrong"]
    good = listed["good"]
    assert (good["domain"], good["rows"], good["needs"], good["runs"]) == ("agent", 2, [], "yes")
    assert listed["hungry"]["needs"][0]["commands"] == ["pip install no-such-a"]
    assert "app.py:1" in listed["wrong"]["problem"]


def test_the_folder_of_servers_names_its_checkout(checkout: Path) -> None:
    done = ludus("envs", "--nemo-gym", str(checkout / "resources_servers"), "--json")
    assert len(json.loads(done.stdout)) == 4


def test_a_checkout_without_servers_is_one_clear_line(tmp_path: Path) -> None:
    done = ludus("envs", "--nemo-gym", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.strip().startswith(f"error: {tmp_path} has no servers in resources_servers.")


def test_printed_commands_survive_a_folder_with_spaces(tmp_path: Path) -> None:
    judge = {"judge_model_server": {"type": "responses_api_models", "name": "???"}}
    folder = server(tmp_path / "a b", settings=judge, files={"requirements.txt": "pydantic<2\n"})
    for need in needs(str(folder)):
        for command in need.commands:
            assert any(word.startswith(str(folder)) for word in shlex.split(command)) or "install" in command
