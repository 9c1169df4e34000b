"""Environments on OpenEnv servers: real servers of openenv 0.10, and fake servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.environments.openenv.resources import OpenEnv, way_to_act
from ludus.environments.openenv.server import Connection, openenv_server
from ludus.errors import Failure

_INSTALLED = Path(__file__).parents[2] / ".venv-openenv" / "installed"
real = pytest.mark.skipif(not _INSTALLED.exists(), reason="no server of OpenEnv is installed: make test-adapters")
ROW: dict[str, Any] = {"responses_create_params": {"input": "Begin."}, "reset": {"seed": 3}}
SECRET = "4"  # the text server's secret for seed 3
TEXT = {"properties": {"metadata": {"type": "object"}, "text": {"type": "string"}}, "required": ["text"]}


@contextmanager
def started(*arguments: str) -> Iterator[str]:
    """A real server in its own process."""
    command = [str(_INSTALLED.parent / "bin/python"), str(Path(__file__).parents[1] / "openenv_server.py"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def text() -> Iterator[str]:
    with started("text") as url:
        yield url


@pytest.fixture(scope="module")
def act() -> Iterator[str]:
    with started("act") as url:
        yield url


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    with started("tools") as url:
        yield url


def play(url: str, *turns: Any, row: dict[str, Any] = ROW, **settings: Any) -> ludus.Rollout:
    given = {key.replace("__", "."): value for key, value in settings.items()}
    model = ScriptedModel(turns[0] if callable(turns[0]) else list(turns))
    return ludus.collect(f"openenv:{url}", model=model, input=[row], settings=given).rollouts[0]


def seen(rollout: ludus.Rollout) -> list[str]:
    """The observations and tool outputs that the model saw."""
    assert rollout.response is not None
    items = rollout.response.output
    return [item.get("output") or item["content"] for item in items if "output" in item or item.get("role") == "user"]


def stage_and_kind(rollout: ludus.Rollout) -> tuple[str | None, str]:
    assert rollout.error is not None
    assert rollout.reward is None
    return rollout.error.stage, rollout.error.kind


@real
def test_the_whole_answer_is_the_action_if_an_action_is_one_text(text: str) -> None:
    rollout = play(text, "hi", "there", SECRET)
    assert rollout.reward == pytest.approx(0.5)
    assert rollout.stop_reason == "terminated"
    assert seen(rollout)[:2] == ['{"heard":"hello 4","count":0}', '{"heard":"hi","count":1}']
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [-0.25, -0.25, 1.0]


@real
def test_the_setting_field_shows_only_that_field_of_an_observation(text: str) -> None:
    row = {**ROW, "reset": {"seed": 3, "greeting": "good day"}}
    assert seen(play(text, SECRET, row=row, resources__field="heard")) == ["good day 4"]


@real
def test_the_same_seed_gives_the_same_game_and_a_row_without_a_seed_uses_the_rollouts(text: str) -> None:
    assert seen(play(text, "hi", agent__max_steps=1))[0] == seen(play(text, "hi", agent__max_steps=1))[0]
    row = {"responses_create_params": {"input": "Begin."}}
    starts = {seen(play(text, "hi", row={**row, "number": number}, agent__max_steps=1))[0] for number in range(12)}
    assert len(starts) > 1


@real
def test_the_model_calls_the_tool_act_if_an_action_has_fields(act: str) -> None:
    def move(**arguments: Any) -> dict[str, Any]:
        return {"name": "act", "arguments": arguments}

    wrong = {"calls": [move(direction="up"), move(distance=2), {"name": "fly"}, {"name": "act", "arguments": "no"}]}
    rollout = play(act, wrong, {"calls": [move(direction="right", distance=2), move(direction="right"), move()]})
    assert rollout.reward == 1.0
    assert "'left' or 'right'" in seen(rollout)[1]
    assert "Field required" in seen(rollout)[2]
    assert seen(rollout)[3] == '{"detail":"Not Found"}'
    assert "Invalid tool call arguments" in seen(rollout)[4]
    assert rollout.verdict is not None
    assert rollout.verdict.values["info"] == {"observation": {"position": 3}}


@real
def test_the_model_gets_the_servers_tools(tools: str) -> None:
    offered: list[Any] = []

    def model(request: ludus.Request) -> Any:
        offered.append(request.params["tools"])
        calls = [{"call": "add", "arguments": {"a": 2, "b": 3}}, {"call": "finish"}]
        return calls[request.turn]

    rollout = play(tools, model)
    assert rollout.reward == 1.0
    assert rollout.stop_reason == "terminated"
    assert [entry["name"] for entry in offered[0]] == ["add", "finish"]
    assert "a" in offered[0][0]["parameters"]["properties"]
    assert seen(rollout) == ["5"]


@real
def test_the_model_sees_errors_of_wrong_calls_and_an_answer_without_a_call_ends_the_game(tools: str) -> None:
    rollout = play(tools, {"calls": [{"name": "add", "arguments": {"a": "x"}}, {"name": "reset"}]}, "I am done.")
    assert (rollout.reward, rollout.stop_reason) == (0.0, "truncated")
    assert "validation error" in seen(rollout)[0]
    assert seen(rollout)[1] == '{"detail":"Not Found"}'


@real
def test_a_rollout_without_any_reward_from_the_server_fails(text: str) -> None:
    assert stage_and_kind(play(text, "unpaid", agent__max_steps=2)) == ("verify", "no_reward")
    assert play(text, "unpaid", SECRET).reward == 1.0


@real
def test_an_error_in_every_step_fails_the_rollout_and_an_error_in_one_step_does_not(text: str) -> None:
    assert stage_and_kind(play(text, "raise", agent__max_steps=2)) == ("verify", "crash")
    rollout = play(text, "raise", SECRET)
    assert rollout.reward == 1.0
    assert '{"error":"the environment broke"}' in seen(rollout)


@real
def test_a_model_that_never_acts_gets_reward_0(act: str) -> None:
    assert play(act, "I would rather not.").reward == 0.0


@real
def test_a_server_that_dies_in_a_step_fails_the_rollout() -> None:
    with started("text") as url:
        assert stage_and_kind(play(url, "die")) == ("tool", "disconnected")


@real
def test_sessions_beyond_the_servers_capacity_fail_with_the_capacity_in_the_cause() -> None:
    with started("text", "1") as url:
        rows = [{**ROW, "number": number} for number in range(4)]
        model = ScriptedModel(["sleep 1", SECRET])
        result = ludus.collect(f"openenv:{url}", model=model, input=rows, concurrency=4)
        errors = [rollout.error for rollout in result.rollouts if rollout.error is not None]
        assert {error.kind for error in errors} == {"at_capacity"}
        assert "takes 1 sessions" in errors[0].cause
        assert [rollout.reward for rollout in result.rollouts if rollout.error is None] == [pytest.approx(0.75)]
        assert play(url, SECRET).reward == 1.0


@real
def test_concurrent_rollouts_do_not_share_an_environment(text: str) -> None:
    def model(request: ludus.Request) -> str:
        number = str(request.input[0]["content"])
        return number if request.turn < 3 else SECRET

    rows = [{"responses_create_params": {"input": f"word {n}"}, "reset": {"seed": 3}} for n in range(24)]
    result = ludus.collect(f"openenv:{text}", model=ScriptedModel(model), input=rows, concurrency=24)
    for rollout in result.rollouts:
        word = rollout.job.task.input[0]["content"]
        assert json.loads(seen(rollout)[-1])["heard"] == ",".join([word] * 3)


@real
async def test_a_step_after_a_timed_out_step_fails(text: str) -> None:
    async with openenv_server(text, "NO_TOKEN") as server:
        connection = await server.connect()
        await connection.reset(seed=3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.step({"text": "sleep 0.4"})
        await asyncio.sleep(0.6)
        with pytest.raises(Failure, match="an earlier request of this session got no reply"):
            await connection.step({"text": "next"})
        await connection.close()


#: OpenEnv's own client, in its own environment: prints what it sees of a reset and of some steps.
THEIRS = """
import asyncio, json, sys
from openenv.core import GenericEnvClient

async def main():
    async with GenericEnvClient(base_url=sys.argv[1]) as client:
        seen = [await client.reset(seed=5), *[await client.step({"text": word}) for word in sys.argv[2:]]]
        print(json.dumps([[one.observation, one.reward, one.done] for one in seen]))

asyncio.run(main())
"""


@real
async def test_our_client_and_openenvs_client_see_the_same_observations(text: str) -> None:
    words = ("hi", "unpaid", "7")
    command = [str(_INSTALLED.parent / "bin/python"), "-c", THEIRS, text, *words]
    printed = await asyncio.to_thread(subprocess.check_output, command, text=True)
    theirs = [[_shown(observation), reward, done] for observation, reward, done in json.loads(printed)]
    async with openenv_server(text, "NO_TOKEN") as server:
        connection = await server.connect()
        ours = [await connection.reset(seed=5), *[await connection.step({"text": word}) for word in words]]
        await connection.close()
    assert theirs == [[one.fields, one.reward, one.done] for one in ours]


def _shown(observation: dict[str, Any]) -> dict[str, Any]:
    """What the model sees of an observation."""
    return {name: value for name, value in observation.items() if name != "metadata"}


# Fake servers that misbehave; they need no openenv.

Answer = Callable[[web.WebSocketResponse, dict[str, Any]], Awaitable[None]]
GOOD: dict[str, Any] = {"type": "observation", "data": {"observation": {"heard": "yes"}, "reward": 1.0, "done": True}}


@asynccontextmanager
async def misbehaving(answer: Answer, schema: Any = None) -> AsyncIterator[str]:
    async def socket(request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for message in connection:
                await answer(connection, json.loads(message.data))
        return connection

    async def described(request: web.Request) -> web.Response:
        return web.json_response({"action": TEXT} if schema is None else schema)

    app = web.Application()
    app.add_routes([web.get("/ws", socket), web.get("/schema", described)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(answer: Answer) -> AsyncIterator[Connection]:
    async with misbehaving(answer) as url, openenv_server(url, "NO_TOKEN") as server:
        connection = await server.connect()
        try:
            yield connection
        finally:
            await connection.close()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("not JSON", "bad_response"),
        ("[]", "bad_response"),
        ('{"type": "observation"}', "bad_response"),
        ('{"type": "state", "data": {}}', "bad_response"),
        ('{"type": "observation", "data": {"observation": "hi"}}', "bad_response"),
        ('{"type": "observation", "data": {"observation": {}, "reward": "much"}}', "bad_response"),
        ('{"type": "observation", "data": {"observation": {}, "done": "no"}}', "bad_response"),
        ('{"type": "error", "data": {"code": "CAPACITY_REACHED", "max_sessions": 3}}', "at_capacity"),
        ('{"type": "error", "data": {"code": "FACTORY_ERROR", "message": "no room"}}', "bad_response"),
    ],
)
async def test_a_malformed_or_error_reply_is_a_failure_with_a_kind(reply: str, kind: str) -> None:
    async def answer(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        await socket.send_str(reply)

    async with connected(answer) as connection:
        with pytest.raises(Failure) as raised:
            await connection.step({"text": "hi"})
    assert raised.value.kind == kind


async def test_the_servers_notes_are_not_part_of_an_observation() -> None:
    async def answer(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        noted = {"heard": "yes", "metadata": {"cost": 3}}
        await socket.send_str(json.dumps({"type": "observation", "data": {"observation": noted, "metadata": {}}}))

    async with connected(answer) as connection:
        assert (await connection.step({"text": "hi"})).fields == {"heard": "yes"}


async def test_every_request_after_the_server_closed_the_session_fails() -> None:
    async def answer(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        await socket.close(code=1011, message=b"out of memory")

    async with connected(answer) as connection:
        for expected in ("out of memory", "an earlier request of this session got no reply"):
            with pytest.raises(Failure, match=expected) as raised:
                await connection.step({"text": "hi"})
            assert raised.value.kind == "disconnected"


async def test_no_step_gets_the_reply_to_an_earlier_cancelled_step() -> None:
    async def answer(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        await asyncio.sleep(0.01)
        fields = {"heard": message["data"]["text"]}
        await socket.send_json({"type": "observation", "data": {"observation": fields, "reward": 0, "done": False}})

    for moment in range(12):
        async with connected(answer) as connection:
            for number in range(20):
                step = asyncio.ensure_future(connection.step({"text": str(number)}))
                if number == 3:
                    await asyncio.sleep(0.002 * moment)
                    step.cancel()
                try:
                    assert (await step).fields == {"heard": str(number)}
                except (asyncio.CancelledError, Failure):
                    assert number >= 3


@pytest.mark.parametrize("silent", ["reset", "step"])
async def test_a_server_that_never_answers_is_a_timeout(silent: str) -> None:
    async def answer(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        if message["type"] == silent:
            await asyncio.sleep(3600)
        await socket.send_json(GOOD)

    stage = "open" if silent == "reset" else "tool"
    async with misbehaving(answer) as url:
        rollout = await asyncio.to_thread(play, url, "hi", **{f"limits__{stage}": 0.5})
    assert stage_and_kind(rollout) == (stage, "timeout")


async def test_the_token_from_the_environment_variable_is_sent_and_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "s3cret-value")
    heard: list[str | None] = []

    async def described(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization"))
        return web.json_response({"detail": "s3cret-value is no key"}, status=403)

    app = web.Application()
    app.add_routes([web.get("/schema", described)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with openenv_server(f"http://127.0.0.1:{runner.addresses[0][1]}", "TOKEN_OF_THE_TEST") as server:
            with pytest.raises(Failure, match="answered 403") as raised:
                await server.action_schema()
    finally:
        await runner.cleanup()
    assert heard == ["Bearer s3cret-value"]
    assert "s3cret" not in str(raised.value)


def test_a_missing_or_unreachable_server_is_a_user_error() -> None:
    with pytest.raises(UserError, match="named by its URL"):
        ludus.collect("openenv", model=ScriptedModel(["hi"]), input=[ROW])
    with pytest.raises(UserError, match="cannot reach http://127.0.0.1:1"):
        play("http://127.0.0.1:1", "hi")


def test_a_row_cannot_name_a_server() -> None:
    with pytest.raises(UserError, match="may not name"):
        Environment.named("openenv:http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("schema", "way"),
    [
        (TEXT, "text"),
        ({"properties": {"metadata": {}}}, "tools"),
        ({}, "tools"),
        ({"properties": {"type": {"const": "call_tool"}, "tool_name": {}, "arguments": {}}}, "tools"),
        ({"properties": {"move": {"type": "string", "enum": ["up"]}}, "required": ["move"]}, "act"),
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, "act"),
        ({"properties": {"code": {"type": "string"}, "n": {"type": "integer"}}, "required": ["code"]}, "text"),
        ({"properties": {"code": {"type": "string"}}}, "act"),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}, "act"),
    ],
)
def test_the_action_schema_decides_how_the_model_acts(schema: dict[str, Any], way: str) -> None:
    assert way_to_act(schema) == way


def test_the_shipped_rows_are_the_first_rows_of_the_generator() -> None:
    from itertools import islice

    from ludus.environments.openenv.generate import stream

    shipped = [json.loads(line) for line in Environment.load("openenv").dataset().read_text().splitlines()]
    assert shipped == list(islice(stream(0), len(shipped)))
    assert len(shipped) >= 5
    assert all(OpenEnv.Task.model_validate(row).reset for row in shipped)


def test_the_client_does_not_import_openenv() -> None:
    code = "import sys, ludus.environments.openenv.resources; assert 'openenv' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
