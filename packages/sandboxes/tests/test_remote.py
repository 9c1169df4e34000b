"""Sandboxes on other machines: the protocol over HTTP, spread over servers, and closed when their owner is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
from ludus_sandboxes import remote
from ludus_sandboxes.remote import RemoteProvider
from ludus_sandboxes.server import SandboxApp
from sandboxes import needs
from waiting import until_async, until_gone

from ludus.errors import UserError
from ludus.http.guard import Guard
from ludus.http.listening import Listening, bind
from ludus.sandbox import SandboxError, SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider
from ludus.sandbox.choice import open_provider
from ludus.sandbox.pool import SandboxPool

pytestmark = needs("bubblewrap")


@contextlib.asynccontextmanager
async def server(**options: object) -> AsyncIterator[tuple[SandboxApp, str]]:
    """A sandbox server in this process."""
    app = SandboxApp(SandboxPool(BubblewrapProvider(), warm=1), **options)  # type: ignore[arg-type]
    listening = bind("sandboxes", "127.0.0.1", 0)
    serving = Listening(app, listening)
    await app.start()
    await serving.begin()
    try:
        yield app, f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await serving.stop()
        await app.stop()


@contextlib.asynccontextmanager
async def provider(*urls: str) -> AsyncIterator[RemoteProvider]:
    opened = RemoteProvider(urls)
    try:
        yield opened
    finally:
        await opened.close()


async def test_everything_works_as_on_this_machine():
    async with server() as (app, url), provider(url) as remotes:
        sandbox = await remotes.open(
            SandboxSpec(files={"a.bin": bytes(range(256))}, env={"NAME": "x"}, folders=("app",))
        )
        assert await sandbox.read("a.bin") == bytes(range(256))
        assert (await sandbox.exec(["cat"], stdin=b"\0\xff")).stdout == b"\0\xff"
        assert (await sandbox.exec("echo $NAME; exit 3")).exit_code == 3
        assert (await sandbox.exec("mkdir app && echo 1 > /app/x && cat app/x")).text == "1\n"
        assert (await sandbox.python("import sys\nprint(sys.argv[1], input())", argv=["a"], stdin=b"b")).text == "a b\n"
        assert (await sandbox.python("while True: pass", timeout=0.3)).timed_out
        with pytest.raises(FileNotFoundError, match="nowhere"):
            await sandbox.read("nowhere")
        with pytest.raises(OSError, match="cannot write"):
            await sandbox.write("/etc/passwd", b"x")
        await sandbox.write("b/c.txt", b"hello", executable=True)
        twin = await remotes.fork(sandbox)
        await sandbox.write("b/c.txt", b"changed")
        assert await twin.read("b/c.txt") == b"hello"
        assert app.state()["sandboxes"] == 2
        await sandbox.close()
        await sandbox.close()
        assert app.state()["sandboxes"] == 1


async def test_sandboxes_are_spread_over_servers_and_wait_for_a_place():
    async with server(most=2) as (one, first), server(most=1) as (two, second), provider(first, second) as remotes:
        opened = [await remotes.open(SandboxSpec()) for _ in range(3)]
        assert (one.state()["sandboxes"], two.state()["sandboxes"]) == (2, 1)
        waiting = asyncio.create_task(remotes.open(SandboxSpec()))
        await until_async(lambda: one.requests["/sandbox/open", 429] and two.requests["/sandbox/open", 429])
        assert not waiting.done()
        await opened[2].close()
        assert (await (await waiting).exec(["echo", "here"])).text == "here\n"


async def test_a_cancelled_open_leaves_no_sandbox_on_the_server():
    async with server() as (app, url), provider(url) as remotes:
        await remotes.open(SandboxSpec())
        for number in range(8):
            opening = asyncio.create_task(remotes.open(SandboxSpec()))
            await asyncio.sleep(number * 0.005)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        await asyncio.gather(*remotes._abandoned)
        assert app.state()["sandboxes"] == len(remotes._opened)


async def test_an_open_that_is_cancelled_as_its_answer_arrives_leaves_no_sandbox(monkeypatch: pytest.MonkeyPatch):
    async with server() as (app, url), provider(url) as remotes:
        ask = remotes._servers[0].ask

        async def answered(action: str, **fields: Any) -> Any:
            reply = await ask(action, **fields)
            if action == "open":
                opening.cancel()
            return reply

        monkeypatch.setattr(remotes._servers[0], "ask", answered)
        opening = asyncio.create_task(remotes.open(SandboxSpec()))
        with pytest.raises(asyncio.CancelledError):
            await opening
        await asyncio.gather(*remotes._abandoned)
        assert (app.state()["sandboxes"], remotes._servers[0].sandboxes) == (0, 0)


async def test_a_dead_server_is_skipped():
    async with server() as (_, url):
        async with provider("http://127.0.0.1:1", url) as remotes:
            for _ in range(3):
                async with await remotes.open(SandboxSpec()) as sandbox:
                    assert (await sandbox.exec(["true"])).ok
        async with provider("http://127.0.0.1:1") as nowhere:
            with pytest.raises(SandboxError, match="cannot reach"):
                await nowhere.open(SandboxSpec())


async def test_the_sandboxes_of_a_silent_owner_are_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "_HEARTBEAT", 3600.0)
    async with server(silence=0.4) as (app, url), provider(url) as remotes:
        sandbox = await remotes.open(SandboxSpec())
        await until_async(lambda: app.state()["sandboxes"] == 0)
        with pytest.raises(SandboxError, match="gone"):
            await sandbox.exec(["true"])


async def test_the_sandboxes_of_an_owner_that_reports_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "_HEARTBEAT", 0.05)
    async with server(silence=1.0) as (app, url), provider(url) as remotes:
        sandbox = await remotes.open(SandboxSpec())
        await until_async(lambda: app.requests["/sandbox/renew", 200] > 30)
        assert (await sandbox.exec(["true"])).ok


async def test_another_owner_cannot_use_a_sandbox():
    async with server() as (_, url), provider(url) as mine, provider(url) as theirs:
        sandbox = await mine.open(SandboxSpec())
        other = await theirs.open(SandboxSpec())
        other._name = sandbox._name
        with pytest.raises(SandboxError, match="gone"):
            await other.exec(["true"])
        assert (await sandbox.exec(["true"])).ok


async def test_a_server_with_a_token_demands_it(monkeypatch: pytest.MonkeyPatch):
    async with server(guard=Guard(token="s3cret")) as (_, url):
        async with provider(url) as remotes:
            with pytest.raises(UserError, match="wants a token"):
                await remotes.open(SandboxSpec())
        monkeypatch.setenv("LUDUS_TOKEN", "s3cret")
        async with provider(url) as remotes, await remotes.open(SandboxSpec()) as sandbox:
            assert (await sandbox.exec(["true"])).ok


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"owner": "a", "spec": {"limits": {"memory": 1}}}, "spec"),
        ({"owner": "a", "spec": {"mounts": ["/"]}}, "mounts"),
        ({"owner": "a", "spec": {"folders": ["../etc"]}}, "folders"),
        ({"spec": {}}, "owner"),
        ({"owner": "a", "spec": {"limits": {"memory_mb": -1}}}, "limits"),
        ({"owner": "a", "spec": {"files": {"/usr/x": ""}}}, "spec"),
        ({"owner": "a", "spec": {"packages": ["no-such-package"]}}, "no-such-package"),
        ({"owner": "a", "spec": {"files": {"a": "?"}}}, "spec"),
    ],
)
async def test_a_wrong_request_is_refused(body: dict[str, object], message: str):
    async with server() as (_, url), provider(url) as remotes:
        reply = await remotes._servers[0].connections.request("POST", "/sandbox/open", json.dumps(body).encode())
        assert reply.status == 422
        assert message in reply.body.decode()


ODD: list[Any] = [None, [], {}, "", "\x00", "../../etc", -1, 10**30, 1e308, "NaN", True, [[]], "x" * 100_000, "\ud800"]
RUNS = {
    "command": ["true"],
    "source": "1",
    "argv": [],
    "stdin": "",
    "timeout": 9,
    "cwd": "",
    "env": {},
    "last_bytes": 9,
}
FILES = {"path": "a", "data": "", "max_bytes": 9, "hosts": [], "executable": False}


@pytest.mark.slow
@pytest.mark.parametrize("route", ["exec", "python", "read", "write", "snapshot", "restore", "allow_hosts"])
async def test_no_request_is_an_error_of_the_server_and_other_sandboxes_go_on(route: str):
    usual: dict[str, Any] = RUNS if route in ("exec", "python") else FILES
    async with server() as (_, url), provider(url) as remotes:
        one = remotes._servers[0]
        mine, other = await remotes.open(SandboxSpec()), await remotes.open(SandboxSpec())
        for field in usual:
            for odd in ODD:
                body = {**usual, "owner": one.owner, "sandbox": mine._name, field: odd}
                reply = await one.connections.request("POST", f"/sandbox/{route}", json.dumps(body).encode())
                assert reply.status < 500, (field, str(odd)[:80], reply.status, reply.body[:300])
        assert (await other.exec(["true"])).ok
        assert (await mine.exec(["true"])).ok


@pytest.mark.parametrize("spec", [{"network": True}, {"image": "/work"}, {"image": "/etc/shadow"}])
async def test_a_server_lends_neither_its_network_nor_its_folders(spec: dict[str, object]):
    async with server() as (app, url), provider(url) as remotes:
        body = json.dumps({"owner": "a", "spec": spec}).encode()
        reply = await remotes._servers[0].connections.request("POST", "/sandbox/open", body)
        assert reply.status == 403
        assert app.state()["sandboxes"] == 0


@pytest.mark.parametrize("host", ["127.0.0.1:80", "169.254.169.254:80", "[::1]:22", "localhost:8000"])
async def test_a_server_opens_no_way_to_its_own_network(host: str):
    async with server() as (_, url), provider(url) as remotes, await remotes.open(SandboxSpec()) as sandbox:
        with pytest.raises((SandboxError, OSError), match="this server lets programs reach public addresses only"):
            await sandbox.allow_hosts(["files.example", host])


async def test_no_urls_and_unreachable_ones_are_named():
    with pytest.raises(UserError, match="needs the URLs of its servers"):
        await open_provider("remote")


def children(pid: int) -> list[int]:
    return [each.pid for each in psutil.Process(pid).children(recursive=True)]


@pytest.mark.slow
async def test_the_command_serves_and_leaves_nothing():
    command = [sys.executable, "-m", "ludus", "serve", "sandbox", "--port", "0", "--json", "--max-sessions", "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: ASYNC220
    assert process.stdout is not None
    ready = json.loads(await asyncio.to_thread(process.stdout.readline))
    assert ready["provider"] == "bubblewrap"
    assert ready["most"] == 3
    async with provider(ready["url"]) as remotes:
        sandbox = await remotes.open(SandboxSpec(background=True))
        pid = (await sandbox.exec("sleep 1000 & echo $!")).text
        assert pid.strip().isdigit()
        call = asyncio.create_task(sandbox.exec(["sleep", "1000"], timeout=900))
        await until_async(lambda: len(children(process.pid)) > 2)
        inside = children(process.pid)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(SandboxError):
            await call
    _, errors = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, errors
    assert b"all sandboxes are closed" in errors
    until_gone(*inside)
