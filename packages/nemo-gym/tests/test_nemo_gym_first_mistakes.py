"""What people mistype on their first day with servers of their own, and what they are told."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from gym_commands import SCRIPTED, answers, lines, typed
from hosted_agents import configure_agent, write_agent
from hosted_servers import row, write_server

import ludus
from ludus import ScriptedModel, UserError
from ludus.adapter import needs

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

SIMPLE = """
class Config(BaseResourcesServerConfig):
    size: int = 1


class Server(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""


def collect(where: Any, **settings: Any) -> Any:
    """Collect with one answer, with the server in this process."""
    named = {f"resources.{key}": value for key, value in {"isolate": False, **settings}.items()}
    return ludus.collect(where, model=ScriptedModel(["yes"]), settings=named)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return write_server(tmp_path, "simple", SIMPLE, [row("?")])


@pytest.mark.parametrize("command", [collect, lambda where: needs(str(where))])
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("resources_servers/simpel", "simpel does not exist. Did you mean .*/resources_servers/simple[?]"),
        (
            "resources_servers",
            "resources_servers holds 1 server, and is none itself. Name one .* such as .*simple",
        ),
        ("", "holds 1 server, and is none itself. .* List them: ludus envs --nemo-gym "),
        ("resources_servers/empty", "resources_servers/empty has no app.py. Name the folder of a server with its code"),
    ],
)
def test_a_path_that_is_no_server_says_what_it_is(
    command: Any, path: str, told: str, server: Path, tmp_path: Path
) -> None:
    (server.parent / "empty" / "configs").mkdir(parents=True)
    with pytest.raises(UserError, match=told):
        command(tmp_path / path)


def test_a_configuration_file_in_the_working_directory_needs_no_folder_in_front(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(server / "configs")
    assert collect("simple.yaml").rollouts[0].reward == 1.0


def test_a_syntax_error_has_its_line(server: Path) -> None:
    (server / "app.py").write_text("import os\n\ndef (:\n")
    with pytest.raises(UserError, match="simple/app.py:3: SyntaxError"):
        collect(server)


def test_a_setting_without_its_variable_names_the_variable(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "sized", SIMPLE, [row("?")], settings={"size": "${oc.env:LUDUS_TEST_SIZE}"})
    told = "no value for size. Set LUDUS_TEST_SIZE in the environment, or add: --set resources.size=VALUE"
    with pytest.raises(UserError, match=told):
        collect(folder)


def test_a_mistyped_setting_of_ours_is_recognised(server: Path) -> None:
    with pytest.raises(UserError, match="simple has no setting isolated. Did you mean isolate[?]"):
        collect(server, isolated=True)


def test_a_missing_file_of_rows_leads_to_no_file_that_servers_do_not_have(server: Path) -> None:
    (server / "data" / "example.jsonl").unlink()
    with pytest.raises(UserError, match="there is no file .*example.jsonl") as told:
        collect(server)
    assert "environment.yaml" not in str(told.value)


def test_an_agent_that_names_an_unknown_server_says_which(server: Path, tmp_path: Path) -> None:
    folder = write_agent(tmp_path, "looping")
    configure_agent(folder, "simpel")
    with pytest.raises(UserError, match="names the resources server simpel, which its configuration does not have"):
        ludus.collect(folder, model=ScriptedModel(["yes"]))


def test_servers_of_one_name_in_two_checkouts_keep_their_own_code(tmp_path: Path) -> None:
    rewards = {}
    for reward in ("1.0", "0.5"):
        code = SIMPLE.replace("reward=1.0", f"reward={reward}")
        rewards[reward] = collect(write_server(tmp_path / reward, "simple", code, [row("?")])).rollouts[0].reward
    assert rewards == {"1.0": 1.0, "0.5": 0.5}


def test_servers_in_one_process_keep_their_own_helpers(tmp_path: Path) -> None:
    rewards = {}
    for name, reward in {"one": "1.0", "half": "0.5"}.items():
        code = "from helpers_of_mine import REWARD\n" + SIMPLE.replace("reward=1.0", "reward=REWARD")
        files = {"helpers_of_mine.py": f"REWARD = {reward}"}
        rewards[name] = collect(write_server(tmp_path, name, code, [row("?")], files=files)).rollouts[0].reward
    assert rewards == {"one": 1.0, "half": 0.5}


ASKS = """
class Config(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef


class Server(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        verdict = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=NeMoGymResponseCreateParamsNonStreaming(input="Right?"),
            response_model=NeMoGymResponse,
        )
        return BaseVerifyResponse(**body.model_dump(), reward=float("YES" in verdict.output_text))
"""


def test_a_model_server_has_a_model_of_its_own_by_its_name(tmp_path: Path) -> None:
    judge = {"judge_model_server": {"type": "responses_api_models", "name": "strict"}}
    folder = write_server(tmp_path, "asks", ASKS, [row("?")], settings=judge)
    yes, no = (tmp_path / f"{word}.yaml" for word in ("yes", "no"))
    yes.write_text("- 'YES'")
    no.write_text("- 'NO'")
    settings = {"judge": f"scripted:{no}", "models.strict": f"scripted:{yes}"}
    assert collect(folder, **settings).rollouts[0].reward == 1.0
    with pytest.raises(UserError, match="the model server strict of asks: cannot read script"):
        collect(folder, judge="scripted:nowhere.yaml")


ASYNC_TEST = """
async def test_it_awaits():
    pass
"""


@pytest.mark.usefixtures("few_plugins")
def test_the_tests_of_agents_run_and_async_tests_need_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytest_asyncio")
    monkeypatch.chdir(tmp_path)
    folder = write_agent(tmp_path, "looping")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_app.py").write_text(ASYNC_TEST)
    assert typed("ng_test +entrypoint=responses_api_agents/looping") == 0
    assert typed("gym env test") == 0
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = strict\n")
    assert typed("ng_test +entrypoint=responses_api_agents/looping") == 1


@pytest.mark.usefixtures("few_plugins")
@pytest.mark.parametrize("place", ["responses_api_agents/group/looping", "environment_servers/turn"])
def test_the_tests_of_an_agent_in_a_group_and_of_an_environment_server_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / place / "tests").mkdir(parents=True)
    (tmp_path / place / "app.py").write_text("ANSWER = 42")
    tests = tmp_path / place / "tests" / "test_app.py"
    tests.write_text(f"from {place.replace('/', '.')}.app import ANSWER\n\ndef test_it(): assert ANSWER == 42")
    assert typed(f"ng_test +entrypoint={place}") == 0
    tests.write_text("def test_it(): assert False")
    assert typed("gym env test") == 1


def test_tests_without_pytest_name_what_to_install(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (server / "tests").mkdir()
    (server / "tests" / "test_app.py").write_text(ASYNC_TEST)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert typed("gym env test --resources-server simple") == 2
    assert "pytest, which runs the tests, is not installed. pip install pytest" in capsys.readouterr().err


def test_a_model_that_cannot_be_reached_does_not_cost_the_earlier_results(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answers("yes")
    run = "gym eval run --resources-server simple --output r.jsonl --concurrency 1"
    assert typed(f"{run} {SCRIPTED}") == 0
    earlier = {path.name: path.read_bytes() for path in tmp_path.glob("r*.json*")}
    unreachable = "--model-type openai_model --model m --model-url http://127.0.0.1:9/v1 --model-api-key k"
    assert typed(f"{run} {unreachable}") == 2
    assert "cannot reach http://127.0.0.1:9/v1" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.glob("r*.json*")} == earlier
    (server / "data" / "example.jsonl").write_text("".join(json.dumps(row(text)) + "\n" for text in "ab"))
    assert typed(f"{run} {SCRIPTED}") == 0
    assert [len(lines(name)) for name in ("r.jsonl", "r_materialized_inputs.jsonl")] == [2, 2]
    assert not list(tmp_path.glob(".*.part"))


def test_doctor_names_the_variables_that_the_code_reads_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 'KEY = os.environ["LUDUS_TEST_KEY"]\n\n\ndef later():\n    return os.environ["LUDUS_TEST_LATER"]\n'
    folder = write_server(tmp_path, "simple", reads + SIMPLE, [row("?")])
    (need,) = [need for need in needs(str(folder)) if need.met is False]
    assert (need.name, need.commands) == ("variables", ("export LUDUS_TEST_KEY=VALUE",))
    monkeypatch.setenv("LUDUS_TEST_KEY", "1")
    assert not [need for need in needs(str(folder)) if need.met is False]


def test_a_reward_that_is_not_a_number_is_the_servers(tmp_path: Path) -> None:
    code = SIMPLE.replace("reward=1.0", 'reward=float("nan")')
    (rollout,) = collect(write_server(tmp_path, "simple", code, [row("?")])).rollouts
    assert (rollout.error.kind, rollout.error.cause) == (
        "bad_verdict",
        "the server's reward is null: it was None or NaN",
    )


def test_doctor_names_what_our_nemo_gym_does_not_have(tmp_path: Path) -> None:
    imports = "from nemo_gym import server_utils\nfrom nemo_gym.server_utils import ServerClient, NoSuchName\n"
    folder = write_server(tmp_path, "simple", imports + SIMPLE, [row("?")])
    (need,) = [need for need in needs(str(folder)) if need.met is False]
    assert "imports NoSuchName of nemo_gym.server_utils, which ludus-nemo-gym does not have" in need.why
