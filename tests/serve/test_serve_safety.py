"""The safety of servers: tokens, limits, timeouts, and replies without keys and paths of the machine."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of
from waiting import CEILING, until

from ludus.errors import UserError
from ludus.http import listening
from ludus.remote.http import connect
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving

TOKEN = "a-token-for-tests-only"
POST = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    """An environment whose code raises errors with this machine's paths and keys in their messages."""
    (tmp_path / "environment.yaml").write_text("name: leaky\nresources: resources.py:Leaky\n")
    (tmp_path / "resources.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from ludus import Resources, tool\n"
        "from ludus.runtime.keys import look_up_key\n"
        "class Leaky(Resources):\n"
        "    @tool\n"
        "    async def read(self) -> str:\n"
        '        """Read a file."""\n'
        "        return (Path.home() / 'nothing' / look_up_key('LEAKY_KEY')).read_text()\n"
        "    async def verify(self, task, response):\n"
        "        raise RuntimeError(f'no {Path.home()}/judge.txt with {look_up_key(\"LEAKY_KEY\")}')\n"
    )
    return tmp_path


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """An environment whose verify takes a minute. It writes a file when a session opens, verifies and closes."""
    (tmp_path / "environment.yaml").write_text("name: slow\nresources: resources.py:Slow\n")
    (tmp_path / "resources.py").write_text(
        "import asyncio\n"
        "from pathlib import Path\n"
        "from ludus import Resources\n"
        "class Slow(Resources):\n"
        "    async def open(self, task):\n"
        f"        Path({str(tmp_path)!r}, 'opened').touch()\n"
        "    async def verify(self, task, response):\n"
        f"        Path({str(tmp_path)!r}, 'asked').touch()\n"
        "        await asyncio.sleep(60)\n"
        "        return 1.0\n"
        "    async def close(self):\n"
        f"        Path({str(tmp_path)!r}, 'closed').touch()\n"
    )
    return tmp_path


def test_a_host_beyond_loopback_needs_a_token_before_any_server_listens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    with pytest.raises(UserError, match=r"listening on 0\.0\.0\.0 needs a token\. Set LUDUS_TOKEN"):
        Serving(Plan.of([COUNTER], "local", host="0.0.0.0")).bind()


def test_every_route_except_health_requires_the_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TOKEN", TOKEN)
    with served(COUNTER) as serving:
        for server in serving.plan.servers:
            assert Web(server.url).get("/health").status == 200
            assert Web(server.url, token="wrong").get("/metrics").status == 401
            assert Web(server.url, token=TOKEN).get("/metrics").status == 200
        assert Web(serving.head_url).get("/server_instances").status == 401
        reply = Web(serving.head_url, token=TOKEN).get("/global_config_dict_yaml")
        assert reply.status == 200
        assert TOKEN not in reply.text
        run = Web(url_of(serving, f"{COUNTER}_simple_agent"), token=TOKEN).post("/run", COUNTER_ROW)
        assert run.json()["reward"] == 1.0


def test_a_post_to_an_open_path_requires_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "environment.yaml").write_text("name: any_tool\nresources: resources.py:AnyTool\n")
    (tmp_path / "resources.py").write_text(
        "from ludus import Resources\n"
        "class AnyTool(Resources):\n"
        "    async def call(self, name, arguments):\n"
        "        return f'ran {name!r}'\n"
        "    async def verify(self, task, response):\n"
        "        return 1.0\n"
    )
    monkeypatch.setenv("LUDUS_TOKEN", TOKEN)
    with served(str(tmp_path), resources_only=True) as serving:
        url = serving.plan.servers[0].url
        for path in ("/", "/health", "/ng-rollout/r/health"):
            assert Web(url).post(path, {}).status == 401
        assert Web(url).get("/health").json()["sessions_opened_total"] == 0
        assert Web(url, token=TOKEN).post("/health", {}).text == "ran 'health'"
        assert Web(url, token=TOKEN).post("/", {}).status == 404


#: Digits to Python's `str.isdigit`, which `int` refuses, and a number that is too long for `int`.
NOT_NUMBERS = ("\xb2", "1\xb3", "9" * 5000)


def test_a_header_with_other_digits_than_ascii_ones_is_not_read_as_a_number():
    with served(COUNTER) as serving:
        counter, agent = url_of(serving, COUNTER), url_of(serving, f"{COUNTER}_simple_agent")
        for url, path in [(counter, "/seed_session"), (agent, "/run")]:
            for number in NOT_NUMBERS:
                assert Web(url).post(path, COUNTER_ROW, {"x-ludus-seed": number}).status == 200


def test_a_session_id_without_the_number_of_a_worker_is_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TOKEN", TOKEN)
    with served(COUNTER, resources_only=True, workers=2) as serving:
        url = url_of(serving, COUNTER)
        for number in NOT_NUMBERS:
            session = {"x-ludus-session": f"{number}.made-up"}
            assert Web(url).post("/verify", {}, session).status == 401
            assert Web(url, token=TOKEN).post("/increment_counter", {"count": 1}, session).status == 410


def test_a_body_above_the_size_limit_is_refused():
    with served(COUNTER, resources_only=True, body_bytes=1000) as serving:
        web = Web(url_of(serving, COUNTER))
        assert web.post("/seed_session", b"x" * 1001).status == 413
        assert web.post("/seed_session", COUNTER_ROW).status == 200
        with socket.create_connection(_address(url_of(serving, COUNTER)), timeout=CEILING) as connection:
            connection.sendall(POST % b"/verify" + b"transfer-encoding: chunked\r\n\r\n")
            connection.sendall(b"258\r\n" + b"y" * 600 + b"\r\n258\r\n" + b"y" * 600 + b"\r\n")
            assert b"413" in connection.recv(1000).split(b"\r\n")[0]


def test_a_client_that_sends_its_request_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    with served(COUNTER, resources_only=True) as serving:
        with socket.create_connection(_address(url_of(serving, COUNTER)), timeout=CEILING) as connection:
            connection.sendall(POST % b"/verify")
            with monkeypatch.context() as patch:
                patch.setattr(listening, "HEAD_SECONDS", 0.3)
                assert connection.recv(1000) == b""
        monkeypatch.setattr(serving._site.apps[COUNTER].guard, "body_seconds", 0.3)  # type: ignore[union-attr]
        with socket.create_connection(_address(url_of(serving, COUNTER)), timeout=CEILING) as connection:
            connection.sendall(POST % b"/verify" + b"content-length: 100\r\n\r\n{")
            assert b"408" in connection.recv(1000).split(b"\r\n")[0]
        assert Web(url_of(serving, COUNTER)).get("/health").status == 200


@pytest.mark.parametrize(
    "rest",
    [
        POST % b"/verify",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{",
        POST % b"/verify" + b"content-length: 100\r\n\r\n{",
    ],
    ids=["head", "body of a GET", "body of a POST"],
)
def test_a_slow_second_request_on_a_connection_is_cut_off_too(monkeypatch: pytest.MonkeyPatch, rest: bytes):
    with served(COUNTER, resources_only=True) as serving:
        monkeypatch.setattr(serving._site.apps[COUNTER].guard, "body_seconds", 0.3)  # type: ignore[union-attr]
        with socket.create_connection(_address(url_of(serving, COUNTER)), timeout=CEILING) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in connection.recv(1000)
            connection.sendall(rest)
            monkeypatch.setattr(listening, "HEAD_SECONDS", 0.3)
            monkeypatch.setattr(listening, "REQUEST_SECONDS", 0.6)
            while connection.recv(1000):
                pass


def test_a_stopping_server_answers_running_rollouts_with_503(monkeypatch: pytest.MonkeyPatch, slow: Path):
    monkeypatch.setattr(listening, "STOP_SECONDS", 1)
    with ThreadPoolExecutor() as pool:
        with served(str(slow)) as serving:
            agent = next(server for server in serving.plan.servers if server.kind == "responses_api_agents")
            told = pool.submit(Web(agent.url).post, "/run", {"responses_create_params": {"input": "x"}})
            until((slow / "asked").exists)
        reply = told.result(CEILING)
    assert (reply.status, reply.json()["kind"]) == (503, "disconnected")
    assert (slow / "closed").exists()


def test_mcp_requests_count_against_the_limit_on_concurrent_requests(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mcp")
    with served(COUNTER, resources_only=True, mcp=True) as serving:
        monkeypatch.setattr(serving.apps[COUNTER].guard, "at_once", 0)
        assert Web(url_of(serving, COUNTER)).post("/mcp", {}).status == 503


def test_the_head_url_works_on_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with served(COUNTER, resources_only=True, host="::1") as serving:
        assert asyncio.run(_get(serving.head_url, "/health")) == 200


def test_a_token_may_contain_non_ascii_letters(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TOKEN", "pässwörd-tökén")
    with served(COUNTER, resources_only=True) as serving:
        found = asyncio.run(_get(url_of(serving, COUNTER), "/metrics"))
    assert found == 200


async def _get(url: str, path: str) -> int:
    async with connect(url, "LUDUS_TOKEN") as client:
        return (await client.get(path)).status


def test_errors_reach_clients_without_keys_and_paths_of_this_machine(
    leaky: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("LEAKY_KEY", "sk-very-secret-value")
    with served(str(leaky), resources_only=True) as serving:
        web = Web(serving.plan.servers[0].url)
        tool = web.post("/read", {})
        judged = web.post("/verify", {"responses_create_params": {"input": "x"}, "response": {"output": []}})
    assert judged.status == 500
    for text in (tool.text, judged.text):
        assert "sk-very-secret-value" not in text
        assert str(Path.home()) + "/" not in text
    assert "reward" not in judged.json()
    assert "RuntimeError" in caplog.text  # the operator's log has the error
    assert "sk-very-secret-value" not in caplog.text


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise asyncio.CancelledError"])
def test_environment_code_that_exits_fails_its_request_and_not_the_server(tmp_path: Path, end: str):
    (tmp_path / "environment.yaml").write_text("name: leaving\nresources: resources.py:Leaving\n")
    (tmp_path / "resources.py").write_text(
        "import asyncio, sys\nfrom ludus import Resources\nclass Leaving(Resources):\n"
        f"    async def open(self, task):\n        if task.where == 'open':\n            {end}\n"
        f"    async def verify(self, task, response):\n        {end}\n"
    )
    row = {"responses_create_params": {"input": "x"}}
    with served(str(tmp_path), resources_only=True) as serving:
        web = Web(serving.plan.servers[0].url)
        opened = web.post("/seed_session", {**row, "where": "open"})
        judged = web.post("/verify", {**row, "where": "verify", "response": {"output": []}})
        assert web.get("/health").status == 200
    for reply, stage in ((opened, "open"), (judged, "verify")):
        assert (reply.status, reply.json()["stage"], reply.json()["kind"]) == (500, stage, "crash")


def test_a_client_that_disconnects_cancels_its_rollout(slow: Path):
    with served(str(slow)) as serving:
        agent = next(server for server in serving.plan.servers if server.kind == "responses_api_agents")
        body = b'{"responses_create_params":{"input":"x"}}'
        with socket.create_connection(_address(agent.url), timeout=CEILING) as connection:
            connection.sendall(POST % b"/run" + b"content-length: %d\r\n\r\n%s" % (len(body), body))
            until((slow / "opened").exists)
        until((slow / "closed").exists)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
