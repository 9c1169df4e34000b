"""Servers that were written for NeMo Gym are collected from their folders, unchanged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hosted_servers import COUNTER, counter_rows, row, write_server

import ludus
from ludus import Environment, Outcome, ScriptedModel, UserError
from ludus.qualify.run import qualify
from ludus.remote.http import connect
from ludus.rescore.rescoring import rescore
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving
from ludus.serve.site import Site
from ludus.store.receipts import verifier_digest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

SAYS_YES = """
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float("yes" in body.response.output_text))
"""
SIMPLE = f"""
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
{SAYS_YES}
"""


NEEDS_SIZE = f"""
class Config(BaseResourcesServerConfig):
    size: int


class Server(SimpleResourcesServer):
    config: Config
{SAYS_YES}
"""


def collect(where: Any, script: Any, *, isolate: bool = False, settings: Any = None, **options: Any) -> Any:
    """Collect with fixed answers. Most servers run in this process, which is faster."""
    names = [path.name for path in (where if isinstance(where, list) else [where]) if isinstance(path, Path)]
    settings = {**{f"{name}.resources.isolate": isolate for name in names}, **(settings or {})}
    return ludus.collect(where, model=ScriptedModel(script), settings=settings, **options)


def rewards(results: Any) -> list[float]:
    return [rollout.reward for rollout in results.rollouts if rollout.reward is not None]


def with_tools(*names: str) -> str:
    """A server with some tools, which raise, refuse or answer in different ways."""
    routes = "\n".join(f'        app.post("/{name}")(self.{name})' for name in names)
    return f"""
class Body(BaseModel):
    count: int = 0
    text: str = ""


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
{routes}
        return app

    async def asynchronous(self, body: Body) -> dict:
        return {{"doubled": 2 * body.count}}

    def plain(self, body: Body) -> dict:
        time.sleep(0.001)
        return {{"tripled": 3 * body.count}}

    async def raising(self, body: Body) -> dict:
        raise ValueError("no such number")

    async def refusing(self, body: Body) -> dict:
        raise HTTPException(status_code=404, detail="no such file")

    async def endless(self, body: Body) -> dict:
        await asyncio.Event().wait()

    async def blocking(self, body: Body) -> dict:
        time.sleep(3600)

    async def dying(self, body: Body) -> dict:
        print("out of luck", flush=True)
        os._exit(7)
{SAYS_YES}
"""


def outputs(rollout: Any) -> list[str]:
    return [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


@pytest.mark.parametrize("isolate", [True, False])
def test_sessions_of_rollouts_at_once_do_not_mix(tmp_path: Path, isolate: bool) -> None:
    folder = write_server(tmp_path, f"counter_{isolate}".lower(), COUNTER, counter_rows(8))
    twice = {"calls": [{"name": "increment_counter", "arguments": {"count": count}} for count in (2, 3)]}
    results = collect(folder, [twice, "done"], repeats=2, isolate=isolate)
    assert rewards(results) == [1.0] * 16
    finals = sorted(rollout.verdict.values["final_count"] for rollout in results.rollouts)
    assert finals == sorted([*range(5, 13)] * 2)


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


def test_a_handler_that_never_returns_is_a_timeout_and_the_server_lives_on(tmp_path: Path) -> None:
    rows = [row("first", "endless"), row("second", "endless")]
    folder = write_server(tmp_path, "endless_tool", with_tools("endless"), rows)
    script = [{"when": "first", "turns": [call("endless"), "yes"]}, {"turns": ["yes"]}]
    results = collect(folder, script, isolate=True, settings={"limits.tool": 1.0})
    assert rewards(results) == [1.0]
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("tool", "timeout")


def test_a_handler_that_blocks_the_event_loop_is_named_and_the_server_started_again(tmp_path: Path) -> None:
    rows = [row("first", "blocking"), row("second", "blocking")]
    folder = write_server(tmp_path, "blocking_tool", with_tools("blocking"), rows)
    script = [{"when": "first", "turns": [call("blocking"), "yes"]}, {"turns": ["yes"]}]
    settings = {"limits.tool": 60.0, "resources.block_seconds": 1.0}
    results = collect(folder, script, isolate=True, settings=settings, concurrency=1)
    assert rewards(results) == [1.0]
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("tool", "timeout")
    number = next(n for n, line in enumerate((folder / "app.py").read_text().splitlines(), 1) if "3600" in line)
    assert f"was killed: app.py:{number} blocked its event loop for 1 s" in failure.error.cause


def test_requests_that_wait_for_a_busy_server_do_not_time_out(tmp_path: Path) -> None:
    code = with_tools("blocking").replace("time.sleep(3600)", "time.sleep(1.5)\n        return {}")
    rows = [row(str(number), "blocking") for number in range(4)]
    folder = write_server(tmp_path, "busy_tool", code, rows)
    results = collect(folder, [call("blocking"), "yes"], isolate=True, settings={"limits.tool": 4.0})
    assert rewards(results) == [1.0] * 4


def test_a_server_that_dies_fails_its_rollout_and_is_started_again(tmp_path: Path) -> None:
    rows = [row("first", "dying"), row("second", "dying"), row("third", "dying")]
    folder = write_server(tmp_path, "dying_tool", with_tools("dying"), rows)
    script = [{"when": "second", "turns": [call("dying"), "yes"]}, {"turns": ["yes"]}]
    results = collect(folder, script, isolate=True, concurrency=1)
    assert rewards(results) == [1.0, 1.0]
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("tool", "crash")
    assert failure.error.cause == "the server dying_tool ended with status 7: out of luck"


JUDGED = """
class Config(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class Server(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        params.input = [{"role": "user", "content": "Is this right: " + body.response.output_text}]
        verdict = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=params,
            response_model=NeMoGymResponse,
        )
        return BaseVerifyResponse(**body.model_dump(), reward=float("[[A=B]]" in verdict.output_text))
"""
JUDGE = {
    "judge_model_server": {"type": "responses_api_models", "name": "???"},
    "judge_responses_create_params": {"input": []},
}


def test_a_judge_is_a_model_of_ours(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "judged", JUDGED, [row("?")], settings=JUDGE)
    script = tmp_path / "judge.yaml"
    script.write_text("- when: 'right: blue'\n  turns: ['[[A=B]]']\n- turns: ['[[A!=B]]']\n")
    judge = {"resources.judge": f"scripted:{script}"}
    assert collect(folder, ["blue"], settings=judge).rollouts[0].reward == 1.0
    assert collect(folder, ["red"], settings=judge).rollouts[0].reward == 0.0


def test_without_a_judge_the_rollout_fails_and_says_what_to_set(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "judged", JUDGED, [row("?")], settings=JUDGE)
    with pytest.raises(UserError, match="no model is set for it: --set resources.judge=SPEC"):
        collect(folder, ["blue"])


SWALLOWING = JUDGED.replace(
    "        verdict = await call_judge(",
    """        try:
            return await self.judge(body, params)
        except Exception:
            return BaseVerifyResponse(**body.model_dump(), reward=0.0)

    async def judge(self, body: BaseVerifyRequest, params: Any) -> BaseVerifyResponse:
        verdict = await call_judge(""",
)


AGAIN = "return await self.judge(body, params)"


@pytest.mark.parametrize("isolate", [True, False])
def test_a_server_that_makes_0_of_a_dead_judge_gives_no_reward(tmp_path: Path, isolate: bool) -> None:
    folder = write_server(tmp_path, f"swallowing_{isolate}".lower(), SWALLOWING, [row("?")], settings=JUDGE)
    script = tmp_path / "judge.yaml"
    script.write_text("- error: {kind: http_500, cause: the judge is on fire}\n")
    results = collect(folder, ["blue"], isolate=isolate, settings={"resources.judge": f"scripted:{script}"})
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("verify", "http_500")
    assert failure.error.cause == "the model server judge_model: the judge is on fire"


#: A judge whose first answer is an error.
FLAKY = """
from ludus import Failure

asked = []


def answer(request):
    asked.append(request)
    if len(asked) == 1:
        raise Failure("http_500", "not yet")
    return "[[A=B]]"
"""


def test_a_judge_that_answers_when_asked_again_gives_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = SWALLOWING.replace("return BaseVerifyResponse(**body.model_dump(), reward=0.0)", AGAIN)
    folder = write_server(tmp_path, "asking_again", again, [row("?")], settings=JUDGE)
    (tmp_path / "flaky_judge.py").write_text(FLAKY)
    monkeypatch.syspath_prepend(tmp_path)
    results = collect(folder, ["blue"], settings={"resources.judge": "scripted:flaky_judge:answer"})
    assert rewards(results) == [1.0]


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


@pytest.mark.parametrize("isolate", [True, False])
def test_a_verifier_that_raises_fails_the_rollout(tmp_path: Path, isolate: bool) -> None:
    code = """
    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            raise KeyError("expected_answer")
    """
    folder = write_server(tmp_path, f"raising_{isolate}".lower(), code, [row("?")])
    results = collect(folder, ["yes"], isolate=isolate)
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("verify", "http_500")
    assert "KeyError('expected_answer')" in failure.error.cause


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


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_package_at_all", "no_such_package_at_all is not installed"),
        ("1 / 0", "ZeroDivisionError"),
        ("class Server(:", "SyntaxError"),
        ("class Server:\n    pass", "defines no server"),
        (
            SIMPLE.replace("BaseResourcesServerConfig", "Config").replace(
                "class Server", "class Config(BaseResourcesServerConfig):\n    size: int\n\n\nclass Server"
            ),
            "size",
        ),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path, code: str, message: str) -> None:
    folder = write_server(tmp_path, "broken", code, [row("?")])
    with pytest.raises(UserError) as raised:
        collect(folder, ["yes"], isolate=True)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_setting_that_the_server_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "strict", SIMPLE, [row("?")])
    with pytest.raises(UserError, match="strict has no setting num_worker. Did you mean num_workers"):
        collect(folder, ["yes"], settings={"resources.num_worker": 3})


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


COUNTS_WORDS = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float("yes" in body.response.output_text))

    def compute_metrics(self, tasks: list) -> dict:
        rewards = sum(rollout["reward"] for task in tasks for rollout in task)
        return {"tasks": len(tasks), "most_repeats": max(map(len, tasks)), "rewards": rewards}

    def get_key_metrics(self, agent_metrics: dict) -> dict:
        return {name: agent_metrics[name] for name in ("tasks", "most_repeats", "rewards")}
"""


@pytest.mark.parametrize("files", [True, False])
def test_the_metrics_of_a_server_stand_beside_ours(tmp_path: Path, files: bool) -> None:
    folder = write_server(tmp_path, f"counting_words_{files}".lower(), COUNTS_WORDS, [row("?"), row("??")])
    results = collect(folder, ["yes"], repeats=3, output=tmp_path / "run" if files else None)
    assert results.metrics["own"] == {folder.name: {"tasks": 2, "most_repeats": 3, "rewards": 6}}


def test_metrics_that_raise_are_a_warning(tmp_path: Path) -> None:
    code = COUNTS_WORDS.replace('return {"tasks"', 'raise KeyError("no such column")\n        return {"tasks"')
    folder = write_server(tmp_path, "miscounting", code, [row("?")])
    results = collect(folder, ["yes"])
    assert rewards(results) == [1.0]
    (warning,) = results.warnings
    assert warning.startswith("miscounting could not compute its own metrics")
    assert "no such column" in warning


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


def test_stored_rollouts_are_judged_again(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "judged_again", COUNTER, counter_rows(3))
    script = [call("increment_counter", count=5), "done"]
    collect(folder, script, output=tmp_path / "run")
    before = verifier_digest(Environment.load(folder))
    code = folder / "app.py"
    code.write_text(code.read_text().replace("float(count == body.expected_count)", "float(count == 6)"))
    assert verifier_digest(Environment.load(folder)) != before
    settings = {"resources.isolate": False}
    report = rescore(tmp_path / "run", environment=folder, settings=settings)
    assert report.counts == {"unchanged": 1, "changed": 2}


def test_a_server_is_qualified_with_hooks_from_elsewhere(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "qualified", COUNTER, counter_rows(5))
    hooks = tmp_path / "my_hooks.py"
    hooks.write_text(
        "def oracle(task):\n"
        "    return [{'call': 'increment_counter', 'arguments': {'count': 5}}, 'Done.']\n\n\n"
        "def breaking(task):\n"
        "    return {'one_more': [{'call': 'increment_counter', 'arguments': {'count': 6}}, 'Done.']}\n"
    )
    card = qualify(folder, hooks=hooks, odd=5, settings={"resources.isolate": False})
    assert (card.verdict, card.oracle) == ("trusted", 1.0)


def test_the_folder_of_a_server_is_served_on_its_own_routes(tmp_path: Path) -> None:
    extra = (
        COUNTER.replace(
            '        app.post("/increment_counter")(self.increment)\n',
            '        app.post("/increment_counter")(self.increment)\n        app.get("/size/{name}")(self.size)\n',
        )
        + """
    async def size(self, name: str, unit: str = "m") -> dict:
        return {"name": name, "unit": unit}
"""
    )
    folder = write_server(tmp_path, "served_counter", extra, counter_rows(1))

    async def use() -> list[Any]:
        async with Serving(Plan.of([str(folder)], resources_only=True, head_port=None)) as serving:
            (server,) = serving.plan.servers
            async with connect(server.url, "LUDUS_TOKEN") as client:
                seeded = await client.post("/seed_session", b'{"initial_count": 3}')
                headers = {"cookie": seeded.cookie}
                counted = await client.post("/increment_counter", b'{"count": 4}', headers)
                wrong = await client.post("/increment_counter", b'{"count": "x"}', headers)
                size = await client.get("/size/rug?unit=cm")
                mode = await client.get("/reverify_mode")
                return [seeded.status, counted.json(), wrong.status, size.json(), mode.json()]

    expected = [200, {"success": True}, 422, {"name": "rug", "unit": "cm"}, "unknown"]
    assert asyncio.run(use()) == expected


def test_several_processes_do_not_share_the_sessions_of_a_server(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "one_process", COUNTER, counter_rows(1))

    async def serve() -> None:
        site = Site(Plan.of([str(folder)], resources_only=True, head_port=None, workers=2))
        try:
            await site.open()
        finally:
            await site.stop()

    with pytest.raises(UserError, match="one_process keeps its sessions in one process.*Leave --workers out"):
        asyncio.run(serve())


TYPED = """
from nemo_gym.base_resources_server import (
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
)


class VerifyRequest(BaseVerifyRequest):
    word: str


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    words: dict[str, str] = Field(default_factory=dict)

    async def seed_session(self, request: Request, body: ResourcesSeedSessionRequest) -> ResourcesSeedSessionResponse:
        request.session["mine"] = body.resources_session_id
        self.words[body.resources_session_id] = body.task_data["word"]
        return ResourcesSeedSessionResponse(resources_session_id=body.resources_session_id)

    async def close_resources_session(self, body: ResourcesCloseSessionRequest) -> ResourcesCloseSessionResponse:
        del self.words[body.resources_session_id]
        (Path(__file__).parent / "closed").touch()
        return ResourcesCloseSessionResponse(resources_session_id=body.resources_session_id)

    async def verify(self, request: Request, body: VerifyRequest) -> BaseVerifyResponse:
        word = self.words[request.session["mine"]]
        return BaseVerifyResponse(**body.model_dump(), reward=float(word == body.word == body.response.output_text))
"""


def test_sessions_with_given_ids_begin_and_end(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "typed_words", TYPED, [row("?", word="yes"), row("?", word="no")])
    file = folder / "configs" / "typed_words.yaml"
    tree = json.loads(file.read_text())
    front = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "typed_words"},
        "agent_server": {"type": "responses_api_agents", "name": "typed_words_simple_agent"},
    }
    del tree["typed_words_simple_agent"]["responses_api_agents"]["simple_agent"]["resources_server"]
    file.write_text(json.dumps({**tree, "typed_turns": {"environment_servers": {"single_agent_turn": front}}}))
    results = collect(folder, ["yes"])
    assert sorted(rewards(results)) == [0.0, 1.0]
    assert (folder / "closed").exists()
