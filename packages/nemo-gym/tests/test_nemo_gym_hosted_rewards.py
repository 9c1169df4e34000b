"""What hosted servers and agents say about a rollout becomes its reward, and nothing else does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hosted_agents import LOOP, write_agent
from hosted_servers import row, write_server
from waiting import is_running, until_async

import ludus
from ludus import ScriptedModel
from ludus.remote.http import connect
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

#: Counts what its sessions did. `fault` says how its verdict goes wrong.
COUNTING = """
from nemo_gym.judge import JudgeError


class Seed(BaseSeedSessionRequest):
    start: int = 0


class Judged(BaseVerifyRequest):
    fault: str = ""


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    counts: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for name in ("count", "win", "die", "pid"):
            app.post(f"/{name}")(getattr(self, name))
        return app

    async def seed_session(self, request: Request, body: Seed) -> BaseSeedSessionResponse:
        self.counts[request.session[SESSION_ID_KEY]] = body.start
        return BaseSeedSessionResponse()

    async def count(self, request: Request) -> dict:
        key = request.session[SESSION_ID_KEY]
        self.counts[key] = self.counts.get(key, 0) + 1
        return {"count": self.counts[key]}

    async def win(self, request: Request) -> dict:
        self.counts[request.session[SESSION_ID_KEY]] = 100
        return {}

    async def die(self) -> dict:
        os._exit(9)

    async def pid(self) -> dict:
        return {"pid": os.getpid()}

    async def verify(self, request: Request, body: Judged) -> BaseVerifyResponse:
        if body.fault == "raises":
            raise RuntimeError("the verifier broke")
        if body.fault == "judge":
            raise JudgeError("the judge is down")
        reward = float(self.counts.get(request.session[SESSION_ID_KEY], 0))
        return BaseVerifyResponse(
            **body.model_dump(), reward=reward, mask_sample=body.fault == "masks", failure_reason="no sandbox"
        )
"""

#: Makes a reward of whatever happens, and keeps nothing of a verdict but its number.
CARELESS = (
    LOOP.replace("async def run(self", "async def play(self")
    + """
    async def run(self, request: Request, body: RunRequest) -> dict:
        try:
            played = await self.play(request, body)
        except Exception:
            return {"response": EMPTY, "reward": 0.0}
        return {"response": played.response.model_dump(), "reward": played.reward}


EMPTY = {"id": "r", "created_at": 1, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
         "tool_choice": "auto", "tools": []}
"""
)


def play(tmp_path: Path, script: Any, *, isolate: bool = False, **fields: Any) -> Any:
    """One rollout of the careless agent on the counting server."""
    write_agent(tmp_path, "careless", CARELESS)
    folder = write_server(tmp_path, "counting", COUNTING, [row("?", "count", "die", **fields)], agent="careless")
    settings = {"resources.isolate": isolate, "agent.isolate": False}
    (rollout,) = ludus.collect(folder, model=ScriptedModel(script), settings=settings).rollouts
    return rollout


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


@pytest.mark.parametrize(
    ("fault", "kind", "cause"),
    [("raises", "http_500", "the verifier broke"), ("judge", "judge_failed", "the judge is down")],
)
def test_a_verdict_that_failed_is_no_reward_whatever_the_agent_makes_of_it(
    tmp_path: Path, fault: str, kind: str, cause: str
) -> None:
    rollout = play(tmp_path, ["done"], fault=fault)
    assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "verify", kind)
    assert cause in rollout.error.cause


def test_a_masked_verdict_stays_masked_if_the_agent_drops_the_mask(tmp_path: Path) -> None:
    rollout = play(tmp_path, ["done"], fault="masks")
    assert (rollout.outcome, rollout.verdict.mask) == ("masked", "no sandbox")


def test_a_server_that_dies_under_an_agent_judges_nothing_afterwards(tmp_path: Path) -> None:
    rollout = play(tmp_path, [call("count"), call("die"), call("count"), "done"], isolate=True)
    assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "tool", "crash")


MADE_UP = [
    "seed_session",
    "win",
    "seed_session?a=b",
    "%73eed_session",
    "%2573eed_session",
    "../counting/../seed_session",
]


def test_a_model_reaches_no_route_that_it_was_not_offered(tmp_path: Path) -> None:
    names = [*MADE_UP, "verify", "v1/responses", "ng-rollout/1/seed_session", "a\nb", "x" * 9999]
    calls = [{"name": name, "arguments": {"start": 1000}} for name in names]
    rollout = play(tmp_path, [call("count"), {"calls": calls}, call("count"), "done"])
    assert rollout.reward == 2.0
    first, *outputs, last = [
        item["output"] for item in rollout.response.output if item["type"] == "function_call_output"
    ]
    assert (first, last) == ('{"count":1}', '{"count":2}')
    wrong = [name for name, output in zip(names, outputs, strict=True) if "Not Found" not in output]
    assert wrong == []  # "Not Found" in the words of a tool, or of the model's API


async def kill(pid: int) -> None:
    """Kill a server, and give its owner the time to hear of it."""
    os.kill(pid, signal.SIGKILL)
    await until_async(lambda: not is_running(pid))
    await asyncio.sleep(0.2)


class Killing(ScriptedModel):
    """Kills the server, whose process id the last tool output holds, before its second answer."""

    async def respond(self, request: Any) -> Any:
        """The next answer."""
        for item in request.input:
            if item.get("type") == "function_call_output":
                await kill(json.loads(item["output"])["pid"])
        return await super().respond(request)


def test_a_server_that_died_between_two_requests_judges_nothing_afterwards(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "killed", COUNTING, [row("?", "pid", start=7)])
    (rollout,) = ludus.collect(folder, model=Killing([call("pid"), "done"])).rollouts
    assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "verify", "session_lost")


def test_a_served_session_does_not_survive_its_process(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "served", COUNTING, [row("?", "pid")])

    async def use() -> list[Any]:
        async with Serving(Plan.of([str(folder)], resources_only=True, head_port=None)) as serving:
            (server,) = serving.plan.servers
            async with connect(server.url, "LUDUS_TOKEN") as client:
                seeded = await client.post("/seed_session", b'{"start": 7}')
                headers = {"cookie": seeded.cookie}
                counted = await client.post("/count", b"{}", headers)
                await kill((await client.post("/pid", b"{}", headers)).json()["pid"])
                lost = await client.post("/count", b"{}", headers)
                again = await client.post("/seed_session", b'{"start": 3}', headers)
                new = await client.post("/count", b"{}", {"cookie": again.cookie})
                return [counted.json(), lost.status, lost.json()["kind"], new.json()]

    assert asyncio.run(use()) == [{"count": 8}, 410, "session_lost", {"count": 4}]


ANSWERS = """
from starlette.responses import Response


class Judged(BaseVerifyRequest):
    answer: str


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: Judged) -> Any:
        return Response(body.answer, media_type="application/json")
"""


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ('"components": {"a": 1}, "self": 5', {"components": {"a": 1}, "self": 5}),
        ('"reward_components": [1, 2], "turn_rewards": 3', {}),
        ('"mask": [0, 1, 1]', {}),
    ],
)
def test_fields_of_a_reply_may_have_names_that_our_verdicts_use(tmp_path: Path, answer: str, values: Any) -> None:
    folder = write_server(tmp_path, "answers", ANSWERS, [row("?", answer=f'{{"reward": 1.0, {answer}}}')])
    settings = {"resources.isolate": False}
    (rollout,) = ludus.collect(folder, model=ScriptedModel(["!"]), settings=settings).rollouts
    assert (rollout.outcome, rollout.reward, rollout.verdict.values) == ("completed", 1.0, values)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [('"_ng_failure_class": "judge_failed"', "judge_failed"), ('"_ng_failure_class": "", "reward": 1.0', "failed")],
)
def test_a_failure_that_a_server_names_is_known_by_that_name(tmp_path: Path, answer: str, kind: str) -> None:
    folder = write_server(tmp_path, "failing", ANSWERS, [row("?", answer=f"{{{answer}}}")])
    settings = {"resources.isolate": False}
    (rollout,) = ludus.collect(folder, model=ScriptedModel(["!"]), settings=settings).rollouts
    assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "verify", kind)


NO_VERDICTS = {
    "null": "bad_verdict",
    '"fine"': "bad_verdict",
    "[1.0]": "bad_verdict",
    "{}": "bad_verdict",
    '{"reward": "high"}': "bad_verdict",
    '{"reward": [1]}': "bad_verdict",
    '{"reward": null}': "bad_verdict",
    '{"reward": 1e999}': "bad_response",
    "not JSON": "bad_response",
    "": "bad_response",
}


def test_a_reply_of_a_wrong_type_is_a_failure_and_no_reward(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "wrong", ANSWERS, [row("?", answer=answer) for answer in NO_VERDICTS])
    settings = {"resources.isolate": False}
    rollouts = ludus.collect(folder, model=ScriptedModel(["!"]), settings=settings).rollouts
    outcomes = {rollout.task.answer: (rollout.reward, rollout.error.stage, rollout.error.kind) for rollout in rollouts}
    assert outcomes == {answer: (None, "verify", kind) for answer, kind in NO_VERDICTS.items()}


STEPS = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/reset")(self.reset)
        app.post("/step")(self.step)
        return app

    async def reset(self) -> dict:
        return {"observation": "Go."}

    async def step(self) -> dict:
        return {"observation": None, "terminated": True}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise NotImplementedError
"""


def test_a_step_without_a_reward_is_a_failure(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "steps", STEPS, [row("?")], agent="gymnasium_agent")
    settings = {"resources.isolate": False}
    (rollout,) = ludus.collect(folder, model=ScriptedModel(["!"]), settings=settings).rollouts
    assert (rollout.reward, rollout.error.kind) == (None, "bad_verdict")
