"""A bad MCP server causes only tool errors that the model can read, and failures with a kind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lazily
import psutil
import pytest
from mcp_sessions import ROW, STDIO, Sum, opened, outputs, play, served
from servers import Server
from waiting import CEILING, until, until_async

import ludus
from ludus import Response, ScriptedModel, UserError
from ludus.errors import Failure
from ludus.integrations.mcp_servers import HttpServer, StderrFile, failure_of
from ludus.integrations.mcp_session import McpSession

lazily.needs("mcp", "pip install 'ludus-gym[mcp]'")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that no test kills."""
    with served() as (address, _):
        yield address


#: Writes its process id into the file in `argv[1]`, then runs the rest of the program.
PROGRAM = "import os, pathlib, signal, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); "


def program(pid_file: Path, rest: str) -> dict[str, Any]:
    return {"command": [sys.executable, "-c", PROGRAM + rest, str(pid_file)]}


def is_alive(pid_file: Path) -> bool:
    if not has_started(pid_file):  # it may have been ended before it could say who it is
        return any(str(pid_file) in child.cmdline() for child in psutil.Process().children(recursive=True))
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


async def started(pid_file: Path) -> None:
    """Wait for a program to say who it is."""
    await until_async(lambda: has_started(pid_file))


def has_started(pid_file: Path) -> bool:
    return pid_file.exists() and pid_file.read_text() != ""


async def count(session: Any, tool: str) -> int:
    return int(await session.call(tool, "{}"))


def stage_and_kind(rollout: ludus.Rollout) -> tuple[str | None, str]:
    assert rollout.error is not None
    assert rollout.reward is None
    return rollout.error.stage, rollout.error.kind


@pytest.mark.parametrize("transport", ["stdio", "http", "json"])
def test_a_server_killed_between_two_calls_fails_the_rollout_in_stage_tool(transport: str, tmp_path: Path) -> None:
    def model(request: ludus.Request) -> Any:
        if request.turn == 0:
            return {"call": "process_id"}
        os.kill(int(request.input[-1]["output"]), signal.SIGKILL)
        return {"call": "add", "arguments": {"a": 2, "b": 3}}

    with contextlib.ExitStack() as stack:
        if transport == "stdio":
            settings: dict[str, Any] = STDIO
        else:
            settings = {"url": stack.enter_context(served(*(["--json"] if transport == "json" else [])))[0]}
        given = {f"resources.{key}": value for key, value in settings.items()}
        with contextlib.suppress(UserError):  # a run stops early if its only rollout was refused
            ludus.collect(Sum, model=ScriptedModel(model), input=[ROW], settings=given, output=tmp_path / "out")
    (failed,) = map(json.loads, (tmp_path / "out" / "failures.jsonl").read_text().splitlines())
    assert failed["stage"] == "tool"
    assert failed["kind"] in ("disconnected", "refused")


def test_a_library_that_trips_over_a_broken_connection_is_no_crash() -> None:
    """Seen in one of 200 kills: anyio asks the socket of a connection that has just been reset for its address."""
    error = ExceptionGroup("", [AttributeError("'NoneType' object has no attribute 'getpeername'")])
    with StderrFile() as stderr:
        failure = failure_of(error, HttpServer("http://127.0.0.1:1/mcp", "a server"), stderr)
    assert failure.kind == "disconnected"
    assert "getpeername" in failure.cause


@pytest.mark.parametrize("transport", ["stdio", "http", "json"])
def test_a_server_that_dies_in_a_call_fails_the_rollout_with_its_last_stderr_line(transport: str) -> None:
    turns = [{"call": "die", "arguments": {"words": "out of memory"}}, "5"]
    if transport == "stdio":
        rollout = play(STDIO, *turns)
        assert "out of memory" in str(rollout.error)
    else:
        with served(*(["--json"] if transport == "json" else [])) as (url, _):
            rollout = play({"url": url}, *turns)
    assert stage_and_kind(rollout) == ("tool", "disconnected")


def test_a_server_that_dies_in_a_verifiers_call_fails_the_rollout_in_stage_verify() -> None:
    class Killing(Sum):
        async def verify(self, task: Any, response: Response) -> float:
            await self.call_server("die", {"words": ""})
            return 1.0

    given = {"resources.command": STDIO["command"]}
    [rollout] = ludus.collect(Killing, model=ScriptedModel(["5"]), input=[ROW], settings=given).rollouts
    assert stage_and_kind(rollout) == ("verify", "disconnected")


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("sys.exit('no licence')", "no licence"),
        ("print('hello?', flush=True); sys.exit(3)", "gone"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "gone"),
    ],
)
def test_a_program_that_dies_at_start_fails_the_rollout_in_stage_open(tmp_path: Path, rest: str, words: str) -> None:
    rollout = play(program(tmp_path / "pid", rest), "5")
    assert stage_and_kind(rollout) == ("open", "disconnected")
    assert words in str(rollout.error)


def test_a_server_that_no_rollout_can_reach_stops_the_run_with_a_user_error(server: Server) -> None:
    server.routes, server.faults = {"/v1/mcp"}, ["401"]
    with pytest.raises(UserError, match="/no/such/program: cannot be started: No such file"):
        play({"command": ["/no/such/program"]}, "5")
    with pytest.raises(UserError, match="127.0.0.1:1/mcp: cannot be reached"):
        play({"url": "http://127.0.0.1:1/mcp"}, "5")
    with pytest.raises(UserError, match="answered 401.*Check the key"):
        play({"url": f"{server.url}/mcp"}, "5")


def test_a_program_that_never_answers_times_out_in_stage_open_and_is_stopped(tmp_path: Path) -> None:
    rollout = play(program(tmp_path / "pid", "time.sleep(3600)"), "5", open=1.0)
    assert stage_and_kind(rollout) == ("open", "timeout")
    until(lambda: not is_alive(tmp_path / "pid"))


@pytest.mark.slow
def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    rollout = play(program(tmp_path / "pid", stubborn), "5", open=1.0)
    assert stage_and_kind(rollout) == ("open", "timeout")
    until(lambda: not is_alive(tmp_path / "pid"))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("hang", "timeout"),
        ("close", "disconnected"),
        ("reset", "disconnected"),
        ("garbage", "bad_response"),
        ("503", "http_503"),
        ("429", "http_429"),
        ("500", "http_500"),
    ],
)
def test_every_fault_of_an_http_server_is_a_failure_with_a_kind_in_stage_open(
    server: Server, fault: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_THE_TEST", "s3cret-value")
    server.routes, server.faults = {"/v1/mcp"}, [fault] * 4
    settings = {"url": f"{server.url}/mcp", "headers": {"Authorization": "Bearer ${KEY_OF_THE_TEST}"}}
    rollout = play(settings, "5", open=1.0 if fault == "hang" else CEILING)
    assert stage_and_kind(rollout) == ("open", kind)
    assert b"Bearer s3cret-value" in server.headers[0]
    assert "s3cret" not in str(rollout.error)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_call_without_an_answer_times_out(transport: str, url: str) -> None:
    turns = [{"call": "sleep_then_say", "arguments": {"seconds": 3600, "text": ""}}, "5"]
    rollout = play(STDIO if transport == "stdio" else {"url": url}, *turns, tool=0.5)
    assert stage_and_kind(rollout) == ("tool", "timeout")


@pytest.mark.parametrize("transport", ["stdio", "http", "json"])
async def test_a_late_answer_reaches_no_other_call_and_no_other_session(transport: str) -> None:
    with contextlib.ExitStack() as stack:
        if transport == "stdio":
            settings: dict[str, Any] = STDIO
        else:
            settings = {"url": stack.enter_context(served(*(["--json"] if transport == "json" else [])))[0]}
        async with opened(settings) as one, opened(settings) as other:
            for number in range(5):
                late = json.dumps({"seconds": 0.05, "text": f"late {number}"})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01 * number):
                        await one.call("sleep_then_say", late)
                on_time = json.dumps({"seconds": 0.02, "text": f"on time {number}"})
                answers = await asyncio.gather(*(each.call("sleep_then_say", on_time) for each in (one, other)))
                assert answers == [f"on time {number}"] * 2


async def test_a_cancelled_call_is_cancelled_on_the_server_too(url: str) -> None:
    async with opened({"url": url}) as session:
        begun, cancelled = await count(session, "count_begun"), await count(session, "count_cancelled")
        waiting = asyncio.create_task(session.call("sleep_then_say", '{"seconds": 3600, "text": ""}'))
        async with asyncio.timeout(CEILING):
            while await count(session, "count_begun") == begun:
                pass
            waiting.cancel()
            while await count(session, "count_cancelled") == cancelled:
                pass
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_cancelled_rollout_ends_its_child_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    waiting = asyncio.create_task(_hold_open(program(pid_file, "sys.stdin.read()")))
    await started(pid_file)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until_async(lambda: not is_alive(pid_file))  # it was told to end, which takes it a moment


async def _hold_open(settings: dict[str, Any]) -> None:
    async with opened(settings):
        await asyncio.sleep(3600)


async def test_a_cancelled_stop_still_ends_the_child_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    config = Sum.Config(**program(pid_file, "sys.stdin.read(); time.sleep(3600)"))
    async with Sum.share(config) as server:
        session = McpSession(server)
        opening = asyncio.create_task(session.start())
        await started(pid_file)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        stopping = asyncio.create_task(session.stop())
        for _ in range(3):  # it has begun to wait for the program to end
            await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert is_alive(pid_file)
        await session.stop()
        await until_async(lambda: not is_alive(pid_file))


def test_a_protocol_error_is_the_tools_output(url: str) -> None:
    codes = [-32000, -32001, -32602, -32603, 7]
    calls = [{"name": "protocol_error", "arguments": {"code": code, "message": "over quota"}} for code in codes]
    rollout = play({"url": url}, {"calls": calls}, "5")
    assert rollout.reward == 1.0
    assert outputs(rollout) == ['{"error":"over quota"}'] * len(codes)


async def test_a_server_without_sessions_can_be_used() -> None:
    with served("--no-sessions") as (url, _):
        async with opened({"url": url}) as session:
            assert await session.call("add", '{"a": 2, "b": 3}') == "5"
            assert await session.call("header", '{"name": "mcp-session-id"}') == "none"


async def test_a_session_that_the_server_deleted_fails_the_next_call(url: str) -> None:
    import httpx2

    async with opened({"url": url}) as session:
        known = (await session.call_server("header", {"name": "mcp-session-id"})).content[0].text
        async with httpx2.AsyncClient() as client:
            await client.delete(url, headers={"mcp-session-id": known})
        with pytest.raises(Failure) as raised:
            await session.call("add", '{"a": 2, "b": 3}')
    assert raised.value.kind == "disconnected"


async def test_calls_before_open_and_after_close_fail(url: str) -> None:
    async with opened({"url": url}) as session:
        pass
    with pytest.raises(Failure, match="closed"):
        await session.call("add", "{}")
    await session.close()
    unopened = Sum(session.config, session.shared)
    await unopened.close()
    with pytest.raises(Failure, match="no open MCP session has a tool"):
        await unopened.call_server("add", {})


async def test_sessions_whose_server_dies_leave_no_asyncio_task_behind() -> None:
    before = asyncio.all_tasks()
    with served() as (url, pid):
        sessions = [Sum(Sum.Config(url=url), shared) for shared in [server_at(url)] * 10]
        await asyncio.gather(*(session.open(Sum.Task.model_validate(ROW)) for session in sessions))
        calls = [session.call("sleep_then_say", '{"seconds": 3600, "text": ""}') for session in sessions]
        waiting = asyncio.gather(*calls, return_exceptions=True)
        async with asyncio.timeout(CEILING):
            while await count(sessions[0], "count_begun") < len(calls):
                pass
        os.kill(pid, signal.SIGKILL)
        failures = await waiting
        await asyncio.gather(*(session.close() for session in sessions))
    assert all(isinstance(failure, Failure) for failure in failures)
    assert {failure.kind for failure in failures} <= {"disconnected", "refused"}
    assert asyncio.all_tasks() <= before


def server_at(url: str) -> Any:
    from ludus.integrations.mcp import server_of

    return server_of(Sum.Config(url=url))
