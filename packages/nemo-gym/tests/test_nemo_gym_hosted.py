"""Servers that were written for NeMo Gym are collected from their folders, unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hosted_collections import SIMPLE, call, collect, outputs, rewards, with_tools
from hosted_servers import COUNTER, counter_rows, row, write_server, write_typed

import ludus
from ludus import Environment, Outcome, UserError
from ludus.store.receipts import verifier_digest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")


@pytest.mark.parametrize("isolate", [True, False])
def test_sessions_of_rollouts_at_once_do_not_mix(tmp_path: Path, isolate: bool) -> None:
    folder = write_server(tmp_path, f"counter_{isolate}".lower(), COUNTER, counter_rows(8))
    twice = {"calls": [{"name": "increment_counter", "arguments": {"count": count}} for count in (2, 3)]}
    results = collect(folder, [twice, "done"], repeats=2, isolate=isolate)
    assert rewards(results) == [1.0] * 16
    finals = sorted(rollout.verdict.values["final_count"] for rollout in results.rollouts)
    assert finals == sorted([*range(5, 13)] * 2)


def test_a_tool_that_a_row_offers_may_have_the_name_of_a_games_route(tmp_path: Path) -> None:
    code = (
        with_tools("plain")
        .replace('"/plain"', '"/step"')
        .replace("return app", 'app.post("/close")(self.plain)\n        return app')
    )
    folder = write_server(tmp_path, "stepping", code, [row("Go.", "step", "verify")])
    (rollout,) = collect(folder, [call("step", count=2), call("close", count=2), call("verify"), "yes"]).rollouts
    missing = '{"detail":"Not Found"}'
    assert outputs(rollout) == ['{"tripled":6}', missing, missing]
    assert rollout.reward == 1.0


def test_the_model_reads_what_a_handler_returns_refuses_or_raises(tmp_path: Path) -> None:
    names = ("asynchronous", "plain", "raising", "refusing")
    folder = write_server(tmp_path, "tools", with_tools(*names), [row("Go.", *names, "missing")])
    script = [*(call(name, count=2) for name in names), call("plain", count="two"), call("missing"), "yes"]
    (rollout,) = collect(folder, script).rollouts
    texts = outputs(rollout)
    assert texts[:4] == [
        '{"doubled":4}',
        '{"tripled":6}',
        "\"ValueError('no such number')\"",
        '{"detail":"no such file"}',
    ]
    assert json.loads(texts[4])["detail"][0]["loc"] == ["body", "count"]
    assert texts[5] == '{"detail":"Not Found"}'
    assert rollout.reward == 1.0


def test_a_server_finds_its_siblings_and_its_files(tmp_path: Path) -> None:
    code = """
    from util import expected


    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            right = body.response.output_text == expected(Path("data/key.txt").read_text())
            return BaseVerifyResponse(**body.model_dump(), reward=float(right))
    """
    util = "def expected(text):\n    return text.strip().{}()\n"
    first = write_server(
        tmp_path, "first", code, [row("?")], files={"util.py": util.format("upper"), "data/key.txt": "abc\n"}
    )
    second = write_server(
        tmp_path, "second", code, [row("?")], files={"util.py": util.format("lower"), "data/key.txt": "ABC\n"}
    )
    results = collect([first, second], lambda request: "ABC", isolate=True)
    assert {r.job.environment: r.reward for r in results.rollouts} == {"first": 1.0, "second": 0.0}


@pytest.mark.parametrize("folder", ["checkout", "lib/site-packages"])
def test_servers_in_one_process_have_their_own_siblings(tmp_path: Path, folder: str) -> None:
    code = """
    from util import REWARD


    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            return BaseVerifyResponse(**body.model_dump(), reward=REWARD)
    """
    for name, reward in (("first", 0.25), ("second", 0.5)):
        server = write_server(tmp_path / folder, name, code, [row("?")], files={"util.py": f"REWARD = {reward}"})
        assert rewards(collect(server, ["x"])) == [reward]


def test_a_server_may_build_on_another_server_of_the_checkout(tmp_path: Path) -> None:
    base = """
    T = TypeVar("T")


    class Server(SimpleResourcesServer, Generic[T], ABC):
        config: BaseResourcesServerConfig

        def score(self, text: str) -> float:
            raise NotImplementedError

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            return BaseVerifyResponse(**body.model_dump(), reward=self.score(body.response.output_text))
    """
    derived = """
    from resources_servers.base_game.app import Server as Base


    class Config(BaseResourcesServerConfig):
        wanted: str = "no"


    class Server(Base[str]):
        config: Config
        _seen: list = PrivateAttr(default_factory=list)

        def model_post_init(self, context: Any) -> None:
            self._limit = asyncio.Semaphore(1)

        def score(self, text: str) -> float:
            self._seen.append(text)
            return float(text == self.config.wanted)
    """
    other = write_server(tmp_path, "base_game", base, [row("?")])
    folder = write_server(tmp_path, "derived", derived, [row("?")], settings={"wanted": "yes"})
    assert collect(folder, ["yes"]).rollouts[0].reward == 1.0
    assert collect(folder, ["yes"], settings={"resources.wanted": "maybe"}).rollouts[0].reward == 0.0
    before = verifier_digest(Environment.load(folder))
    (other / "app.py").write_text((other / "app.py").read_text() + "\n# changed\n")
    assert verifier_digest(Environment.load(folder)) != before


@pytest.mark.parametrize("isolate", [True, False])
def test_the_package_nemo_gym_of_a_whole_checkout_stays_unused(tmp_path: Path, isolate: bool) -> None:
    folder = write_server(tmp_path, f"whole_{isolate}".lower(), SIMPLE, [row("?")])
    (tmp_path / "nemo_gym").mkdir()
    (tmp_path / "nemo_gym" / "__init__.py").write_text("raise RuntimeError('not ours')")
    assert rewards(collect(folder, ["yes"], isolate=isolate)) == [1.0]


def test_a_masked_sample_is_masked_with_its_reason(tmp_path: Path) -> None:
    code = """
    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            why = {"failure_kind": "verifier_error", "failure_reason": "no disk"}
            return BaseVerifyResponse(**body.model_dump(), reward=0.0, mask_sample=True, **why)
    """
    (rollout,) = collect(write_server(tmp_path, "masking", code, [row("?")]), ["yes"]).rollouts
    assert rollout.outcome is Outcome.MASKED
    assert rollout.verdict.mask == "no disk"


def test_a_game_is_played_by_turns(tmp_path: Path) -> None:
    code = """
    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig
        games: dict[str, int] = Field(default_factory=dict)

        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            app.post("/reset")(self.reset)
            app.post("/step")(self.step)
            return app

        async def reset(self, request: Request) -> dict:
            self.games[request.session[SESSION_ID_KEY]] = 0
            return {"observation": "Guess.", "info": {}}

        async def step(self, request: Request) -> dict:
            key = request.session[SESSION_ID_KEY]
            self.games[key] += 1
            done = self.games[key] == 2
            return {"observation": "Again.", "reward": float(done), "terminated": done, "truncated": False, "info": {}}

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            raise NotImplementedError
    """
    folder = write_server(tmp_path, "guessing", code, [row("Play.")], agent="gymnasium_agent")
    (rollout,) = collect(folder, ["1", "2", "3"]).rollouts
    assert (rollout.reward, len(rollout.calls)) == (1.0, 2)


def test_work_at_import_lifespan_and_middleware_run(tmp_path: Path) -> None:
    code = """
    from contextlib import asynccontextmanager

    TABLE = {str(number): number for number in range(1000)}


    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig
        model_config = ConfigDict(arbitrary_types_allowed=True)

        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            before = app.router.lifespan_context

            @asynccontextmanager
            async def lifespan(app):
                async with before(app):
                    app.state.started = True
                    yield

            app.router.lifespan_context = lifespan

            @app.middleware("http")
            async def mark(request, call_next):
                request.state.marked = True
                return await call_next(request)

            return app

        async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
            ready = request.app.state.started and request.state.marked and len(TABLE) == 1000
            return BaseVerifyResponse(**body.model_dump(), reward=float(ready))
    """
    folder = write_server(tmp_path, "prepared", code, [row("?")])
    assert collect(folder, ["yes"]).rollouts[0].reward == 1.0


def test_ours_and_theirs_are_one_collection(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "theirs", SIMPLE, [row("?"), row("??")])
    results = collect(["example_single_tool_call", folder], ["yes"], limit=2, output=tmp_path / "run")
    assert {rollout.job.environment for rollout in results.rollouts} == {"example_single_tool_call", "theirs"}
    assert len(ludus.load(tmp_path / "run")) == len(results.rollouts) == 4


def test_rows_find_the_server_by_the_name_of_its_agent(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "theirs", SIMPLE, [row("?")])
    rows = [{**row("?"), "agent_ref": {"type": "responses_api_agents", "name": "theirs_simple_agent"}}]
    assert collect([folder], ["yes"], input=rows).rollouts[0].reward == 1.0


def test_a_configuration_file_names_the_server_too(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "theirs", SIMPLE, [row("?")])
    assert Environment.load(folder / "configs" / "theirs.yaml").name == "theirs"
    assert Environment.load(f"nemo_gym:{folder}").name == "theirs"


def test_a_folder_outside_of_a_checkout_needs_no_configuration(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "alone", SIMPLE, [row("?")]).rename(tmp_path / "alone")
    for file in (folder / "configs").iterdir():
        file.unlink()
    assert collect(folder, ["yes"]).rollouts[0].reward == 1.0


@pytest.mark.parametrize("isolate", [False, True])
def test_a_server_reads_other_blocks_of_its_configuration(tmp_path: Path, isolate: bool) -> None:
    code = """
    from nemo_gym.global_config import get_global_config_dict

    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            tree = get_global_config_dict()
            assert Path(tree["cache_dir"]).is_absolute() and Path(tree["results_dir"]).name == "results"
            return BaseVerifyResponse(**body.model_dump(), reward=tree["box"]["local"]["size"])
    """
    folder = write_server(tmp_path, "boxed", code, [row("hi")])
    config = folder / "configs" / "boxed.yaml"
    config.write_text(json.dumps({**json.loads(config.read_text()), "box": {"local": {"size": 3}}}))
    assert rewards(collect(folder, ["x"], isolate=isolate)) == [3.0]


def test_sessions_with_given_ids_begin_and_end(tmp_path: Path) -> None:
    folder = write_typed(tmp_path)
    results = collect(folder, ["yes"])
    assert sorted(rewards(results)) == [0.0, 1.0]
    assert (folder / "closed").exists()


def test_rows_that_are_materialized_tasks_are_played_as_flat_rows(tmp_path: Path) -> None:
    folder = write_typed(tmp_path)
    file = folder / "configs" / "typed_words.yaml"
    tree = json.loads(file.read_text())
    tree["typed_turns"]["environment_servers"]["single_agent_turn"]["datasets"] = [
        {
            "name": "turns",
            "type": "train",
            "taskset": "words",
            "jsonl_fpath": "resources_servers/typed_words/turns.jsonl",
        }
    ]
    file.write_text(json.dumps(tree))
    asked = {"responses_create_params": {"input": "?"}}
    tasks = [{**asked, "task_data": {"word": "yes"}}, {**asked, "word": "no"}]
    rows = [{"task_id": {"taskset": "words", "task_id": "1"}, "task_input": task} for task in tasks]
    rows.append({**asked, "word": "yes"})
    (folder / "turns.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert sorted(rewards(collect(folder, ["yes"], dataset="turns"))) == [0.0, 1.0, 1.0]
    (folder / "turns.jsonl").write_text(json.dumps(rows[0]) + "\n[]\n")
    with pytest.raises(UserError, match=r"turns.jsonl:2: a row is an object. Fix the row"):
        collect(folder, ["yes"], dataset="turns")


def test_a_server_that_is_not_on_this_machine_is_named(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "elsewhere", COUNTER, counter_rows(1))
    environment = Environment.load(folder)
    (folder / "app.py").rename(tmp_path / "app.py")
    with pytest.raises(UserError, match=r"elsewhere/app.py is not on the machine .*every machine of the run mounts"):
        collect(environment, ["x"], input=counter_rows(1))
