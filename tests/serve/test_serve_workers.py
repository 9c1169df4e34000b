"""Several workers behind one address: requests reach the worker of their session, and a dead worker is replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from serving import COUNTER, COUNTER_ROW, TESTS_PATH, Web, served, url_of
from waiting import until, until_gone

import ludus
from ludus.cli import command_line
from ludus.remote.http import connect
from ludus.serve.serving import Serving


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TESTS_PATH)
        with served(COUNTER, workers=2) as running:
            yield running


def pids(serving: Serving) -> dict[int, int]:
    return {each["worker"]: each["pid"] for each in Web(serving.head_url).get("/health").json()["workers"]}


def until_back(serving: Serving, killed: int) -> None:
    """Wait until another process has taken the place of the one that was killed."""
    until(
        lambda: killed not in pids(serving).values() and Web(serving.head_url).get("/health").json()["status"] == "ok"
    )


def sessions_by_worker(serving: Serving, count: int = 24) -> dict[int, list[Web]]:
    """Sessions by worker. The kernel chooses the worker of a new connection, so that many are needed to reach each."""
    found: dict[int, list[Web]] = {0: [], 1: []}
    for number in range(100 * count):
        if number >= count and all(found.values()):
            break
        web = Web(url_of(serving, COUNTER))
        name = web.post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]
        found[int(name.partition(".")[0])].append(web)
    return found


def test_workers_announce_no_channels_so_that_each_gets_a_share_of_a_client(serving: Serving):
    headers = Web(url_of(serving, COUNTER)).post("/seed_session", COUNTER_ROW, {"x-ludus-seed": "1"}).headers
    assert "x-ludus-session" in headers
    assert "x-ludus-channels" not in headers


def test_a_session_always_reaches_the_worker_that_owns_it(serving: Serving):
    for webs in sessions_by_worker(serving).values():
        for web in webs:
            for _ in range(4):  # each request uses a new connection, which any worker may accept
                assert web.post("/increment_counter", {"count": 1}).status == 200
            assert web.post("/get_counter_value", {}).json() == {"count": 5}
            assert web.post("/verify", {**COUNTER_ROW, "response": {"output": []}}).json()["reward"] == 0.0
            assert web.post("/close_session", {}).json() == {"closed": True}


def test_a_killed_worker_loses_only_its_sessions_and_is_restarted(serving: Serving):
    held, before = sessions_by_worker(serving, 60), pids(serving)
    assert all(held.values()), "the kernel gave all connections to one worker"
    os.kill(before[0], signal.SIGKILL)
    until_gone(before[0])
    for web in held[1]:
        assert web.post("/get_counter_value", {}).json() == {"count": 1}
    until_back(serving, before[0])
    for web in held[0]:
        lost = web.post("/get_counter_value", {})
        assert (lost.status, lost.json()["kind"]) == (410, "session_lost")
        assert web.post("/seed_session", COUNTER_ROW).status == 200


def test_a_worker_killed_during_a_collection_fails_only_its_rollouts(serving: Serving):
    rows, killed = [{**COUNTER_ROW, "number": number} for number in range(300)], pids(serving)[1]
    agent = url_of(serving, f"{COUNTER}_simple_agent")

    async def collect() -> list[ludus.Rollout]:
        found = []
        async for rollout in ludus.stream(COUNTER, input=rows, agent=agent, concurrency=16):
            found.append(rollout)
            if len(found) == 40:
                os.kill(killed, signal.SIGKILL)
        return found

    found = asyncio.run(collect())
    until_back(serving, killed)
    failed = [rollout for rollout in found if rollout.error is not None]
    assert len(found) == len(rows)
    assert len(failed) < len(rows) // 4
    assert {rollout.error.kind for rollout in failed if rollout.error} <= {"disconnected", "refused"}
    assert all(rollout.reward == 1.0 for rollout in found if rollout.error is None)


def printing_environment(folder: Path) -> str:
    folder.mkdir()
    (folder / "environment.yaml").write_text(f"name: {folder.name}\nresources: resources.py:Loud\n")
    (folder / "resources.py").write_text(
        "import sys\n"
        "from ludus import Resources, tool\n"
        "print('loading', flush=True)\n"
        "class Loud(Resources):\n"
        "    @tool\n"
        "    async def shout(self) -> str:\n"
        '        """Print a lot."""\n'
        "        print('not for the supervisor ' * 20_000, flush=True)\n"
        "        return 'done'\n"
        "    async def verify(self, task, response):\n"
        "        return 1.0\n"
    )
    return str(folder)


def test_the_prints_of_an_environment_do_not_confuse_the_supervisor(tmp_path: Path, capfd: pytest.CaptureFixture):
    with served(printing_environment(tmp_path / "loud"), resources_only=True, workers=2) as running:
        web, before = Web(url_of(running, "loud")), pids(running)
        for _ in range(8):
            assert web.post("/shout", {}).text == "done"
        os.kill(before[0], signal.SIGKILL)
        until_back(running, before[0])
    assert "loading" in capfd.readouterr().err


def test_servers_with_long_names_in_a_long_temporary_folder_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    long = tmp_path / ("f" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    names = ["n" * 45 + end for end in "ab"]
    environments = [printing_environment(tmp_path / name) for name in names]
    with served(*environments, resources_only=True, workers=2) as running:
        for name in names * 6:
            web = Web(url_of(running, name))
            row = {"responses_create_params": {"input": "x"}}
            assert web.post("/seed_session", row).status == 200
            assert web.post("/verify", {**row, "response": {"output": []}}).json()["reward"] == 1.0
            assert web.post("/close_session", {}).json() == {"closed": True}


async def test_an_mcp_call_reaches_the_worker_of_its_session():
    pytest.importorskip("mcp")
    with served(COUNTER, resources_only=True, workers=2, mcp=True) as running:
        url = url_of(running, COUNTER)
        token = Web(url).post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]
        call = {"name": "increment_counter", "arguments": {"count": 1}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        headers = {"x-nemo-gym-session-token": token, "accept": "application/json, text/event-stream"}
        for _ in range(12):  # each call uses a new connection
            async with connect(url, "LUDUS_TEST_NO_TOKEN") as client:
                reply = await client.post("/mcp", json.dumps(body).encode(), headers)
            assert (reply.status, reply.json()["result"]["isError"]) == (200, False), reply.body


def test_workers_share_the_limit_on_sessions_and_label_their_metrics():
    with served(COUNTER, resources_only=True, workers=2, max_sessions=3) as running:
        url = url_of(running, COUNTER)
        statuses = [Web(url).post("/seed_session", COUNTER_ROW).status for _ in range(40)]
        assert statuses.count(200) <= 4, "two for each worker"
        assert 429 in statuses
        metrics = Web(url).get("/metrics").text
        assert 'ludus_sessions_open{worker="' in metrics
        assert Web(url).get("/health").json()["worker"] in (0, 1)


def shows_pids(port: int) -> bool:
    """Whether the head at a port and `ludus status` tell the process ids of two workers, which are ready."""
    url = f"http://127.0.0.1:{port}"
    workers = Web(url).get("/health").json()["workers"]
    shown = CliRunner().invoke(command_line(), ["status", url], env={"COLUMNS": "200"})
    assert [worker["ready"] for worker in workers] == [True, True]
    assert shown.output.count("ready") == 2, shown.output
    (told,) = {"pid" in worker for worker in workers}
    assert ("pid" in shown.output) is told, shown.output
    return told


def test_health_tells_the_pids_of_workers_only_on_loopback(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    assert shows_pids(int(serving.head_url.rpartition(":")[2]))
    monkeypatch.setenv("LUDUS_TOKEN", "a-token-for-tests-only")
    with served(COUNTER, resources_only=True, workers=2, host="0.0.0.0") as running:
        assert running.plan.head_port is not None
        assert not shows_pids(running.plan.head_port)
