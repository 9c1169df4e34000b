"""Local doubles of the services Daytona, e2b and Modal. Their sandboxes are real ones, made by bubblewrap.

The doubles follow the published descriptions of the services' APIs: paths, fields, headers and statuses.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from ludus_sandboxes.daytona import DaytonaProvider
from ludus_sandboxes.e2b import E2bProvider
from ludus_sandboxes.hosted import HostedProvider
from ludus_sandboxes.modal import ModalProvider
from raw_server import serving

from ludus.sandbox import ExecResult, Sandbox, SandboxLimits, SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider

KEY = "key-of-the-user-1234"

#: What the services let run on, and print, the doubles do too.
_INSIDE = SandboxSpec(limits=SandboxLimits(output_bytes=80 << 20), background=True, folders=("app",))


#: A program that printed nothing and ended with exit code 0, as the script around it reports.
_NOTHING_RAN = ExecResult(exit_code=0, stdout=b"ludus 0 0\no:\ne:\nend\n")


class Double:
    """What all doubles share. `faults` are pairs: a request that contains the first text gets the second as a fault."""

    name: str
    create_request: str  #: what the request for a sandbox contains
    command_request: str  #: what the request to run a command contains

    def __init__(self) -> None:
        self.faults: list[tuple[str, str]] = []
        self.requests: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.sandboxes: dict[str, Sandbox] = {}
        self.holding = asyncio.Event()  #: set while a request with the fault `hang` is held
        self.release = asyncio.Event()  #: set it, and held requests go on
        self.command_reply: Any = None  #: replaces what the service says about a command
        self._provider: BubblewrapProvider | None = None

    @classmethod
    def running_nothing(cls) -> Self:
        """A double that makes no sandboxes, and says that every command ended well."""
        double = cls()
        double.command_reply = double.reply(_NOTHING_RAN)
        return double

    async def create(self, request: dict[str, Any]) -> str:
        sandbox_id = f"sb-{len(self.created)}"
        self.created.append(request)
        if self.command_reply is None:
            self._provider = self._provider or BubblewrapProvider()
            self.sandboxes[sandbox_id] = await self._provider.open(_INSIDE)
        return sandbox_id

    async def delete(self, sandbox_id: str) -> None:
        self.deleted.append(sandbox_id)
        if (sandbox := self.sandboxes.pop(sandbox_id, None)) is not None:
            await sandbox.close()

    async def command(self, sandbox_id: str, command: str, seconds: float, stdin: bytes = b"") -> ExecResult:
        return await self.sandboxes[sandbox_id].exec(command, timeout=seconds, cwd="/", stdin=stdin)

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()

    def reply(self, result: ExecResult) -> Any:
        """What the service says about a command that ended like this."""
        raise NotImplementedError

    def fault(self, request: str) -> str:
        self.requests.append(request)
        for each in self.faults:
            if each[0] in request:
                self.faults.remove(each)
                return each[1]
        return ""


class HttpDouble(Double):
    """A double that speaks HTTP."""

    port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            headers = {k.lower(): v for k, v in re.findall(r"^([^:\r\n]+): (.*)\r$", head, re.MULTILINE)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            fault = self.fault(request := f"{method} {target}")
            if fault == "drop":
                return
            if fault == "half":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
                return
            if fault == "hang":
                self.holding.set()
                await self.release.wait()
                if self.command_request in request:  # whoever asked has gone
                    return
            if fault.isdigit():
                status, reply = int(fault), json.dumps({"message": f"no: {headers} "}).encode()
            elif fault == "garbage":
                status, reply = 200, b"<html>\xff"
            else:
                status, reply = await self.answer(method, target, headers, body)
            writer.write(
                b"HTTP/1.1 %d X\r\nretry-after: 0\r\ncontent-length: %d\r\n\r\n" % (status, len(reply)) + reply
            )
            await writer.drain()

    async def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        raise NotImplementedError


class DaytonaDouble(HttpDouble):
    name = "daytona"
    create_request = "POST /api/sandbox"
    command_request = "/process/execute"
    states = ["creating", "started"]

    async def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        assert headers["authorization"] == f"Bearer {KEY}"
        parts = target.strip("/").split("/")
        if (method, target) == ("POST", "/api/sandbox"):
            self.left = list(self.states)
            return 200, self.described(await self.create(json.loads(body)))
        if parts[:2] == ["api", "sandbox"]:
            if method == "GET":
                return 200, self.described(parts[2])
            if parts[2] not in self.sandboxes and self.command_reply is None:
                return 404, b"{}"
            await self.delete(parts[2])
            return 200, b"{}"
        if parts[2:] == ["process", "execute"]:
            request = json.loads(body)
            if self.command_reply is not None:
                return self.command_reply
            return self.reply(await self.command(parts[1], request["command"], request["timeout"]))
        assert parts[2:] == ["files", "bulk-upload"], target
        field, path, data = _form(headers, body)
        assert field == "files[0].file"
        await self.sandboxes[parts[1]].write(path, data)
        return 200, b"{}"

    def reply(self, result: ExecResult) -> tuple[int, bytes]:
        if result.timed_out:
            return 408, b'{"message": "command execution timeout"}'
        code = result.exit_code if result.exit_code is not None else 128 + (result.signal or 9)
        text = (result.stdout + result.stderr).decode(errors="replace")
        return 200, json.dumps({"exitCode": code, "result": text}).encode()

    def described(self, sandbox_id: str) -> bytes:
        state = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        url = f"{self.url}/toolbox"
        return json.dumps({"id": sandbox_id, "state": state, "errorReason": "no room", "toolboxProxyUrl": url}).encode()


class E2bDouble(HttpDouble):
    name = "e2b"
    create_request = "POST /sandboxes"
    command_request = "/process.Process/Start"
    token = "token-of-the-sandbox"

    async def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(target)
        if parts.path.startswith("/sandboxes"):
            assert headers["x-api-key"] == KEY
            if method == "POST":
                sandbox_id = await self.create(json.loads(body))
                return 201, json.dumps({"sandboxID": sandbox_id, "envdAccessToken": self.token}).encode()
            await self.delete(parts.path.split("/")[2])
            return 204, b""
        assert headers["x-access-token"] == self.token
        assert KEY not in str(headers)
        sandbox_id = headers["e2b-sandbox-id"]
        if parts.path == "/files":
            query = parse_qs(parts.query)
            assert query["username"] == ["user"]
            field, _, data = _form(headers, body)
            assert field == "file"
            await self.sandboxes[sandbox_id].write(unquote(query["path"][0]), data)
            return 200, b"[]"
        assert parts.path == "/process.Process/Start"
        assert headers["content-type"] == "application/connect+json"
        if self.command_reply is not None:
            return self.command_reply
        (size,) = struct.unpack(">I", body[1:5])
        process = json.loads(body[5:])["process"]
        assert (body[0], size, process["cmd"]) == (0, len(body) - 5, "/bin/sh")
        assert process["args"][0] == "-c"
        seconds = int(headers["connect-timeout-ms"]) / 1000
        return self.reply(await self.command(sandbox_id, process["args"][1], seconds))

    def reply(self, result: ExecResult) -> tuple[int, bytes]:
        return 200, e2b_stream(result)


def envelope(content: Any, flags: int = 0) -> bytes:
    """One message of a Connect stream."""
    text = json.dumps(content).encode()
    return struct.pack(">BI", flags, len(text)) + text


def e2b_stream(result: ExecResult) -> bytes:
    """What envd sends about a process that ended like this. Output comes in pieces, zeros are left out."""
    messages = [{"event": {"start": {"pid": 7}}}, {"event": {"keepalive": {}}}]
    for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
        pieces = [data[at : at + 10_000] for at in range(0, len(data), 10_000)]
        messages += [{"event": {"data": {name: base64.b64encode(piece).decode()}}} for piece in pieces]
    if result.timed_out:
        late = {"error": {"code": "deadline_exceeded", "message": "context deadline exceeded"}}
        return b"".join(map(envelope, messages)) + envelope(late, 2)
    code = result.exit_code if result.exit_code is not None else -1
    end = {"exited": result.signal is None, "status": result.why, **({"exitCode": code} if code else {})}
    return b"".join(map(envelope, [*messages, {"event": {"end": end}}])) + envelope({}, 2)


def _form(headers: dict[str, str], body: bytes) -> tuple[str, str, bytes]:
    """The field, the file name and the content of a form with one file."""
    boundary = headers["content-type"].partition("boundary=")[2].encode()
    head, _, rest = body.partition(b"\r\n\r\n")
    assert head.startswith(b"--" + boundary)
    data, mark, _ = rest.rpartition(b"\r\n--" + boundary + b"--\r\n")
    assert mark
    found = re.search(rb'name="([^"]*)"; filename="([^"]*)"', head)
    assert found
    return found[1].decode(), found[2].decode(), data


class ModalDouble(Double):
    """A module that stands in for `modal`. Its blocking functions do not exist: only `.aio` is asked for."""

    name = "modal"
    create_request = "create"
    command_request = "exec"

    def reply(self, result: ExecResult) -> ExecResult:
        return result

    def module(self) -> ModuleType:
        module = ModuleType("modal")
        module.__spec__ = ModuleSpec("modal", None)
        names = {
            "App": SimpleNamespace(lookup=_Aio(self._lookup)),
            "Client": SimpleNamespace(from_credentials=_Aio(self._client)),
            "Image": SimpleNamespace(from_registry=lambda name: f"image {name}", debian_slim=lambda: "debian"),
            "Sandbox": SimpleNamespace(create=_Aio(self._create)),
        }
        vars(module).update(names)
        return module

    async def _client(self, token_id: str, secret: str) -> str:
        assert (token_id, secret) == (KEY, KEY)
        return "client"

    async def _lookup(self, name: str, *, client: Any, create_if_missing: bool) -> str:
        assert (client, create_if_missing) == ("client", True)
        await self._asked("lookup")
        return name

    async def _create(self, **request: Any) -> Any:
        await self._asked("create")
        sandbox_id = await self.create(request)

        async def terminate() -> None:
            await self._asked("terminate")
            await self.delete(sandbox_id)

        async def run(*argv: str, timeout: int, text: bool) -> _ModalProcess:  # noqa: ASYNC109
            assert (argv[:2], text) == (("/bin/sh", "-c"), False)
            await self._asked("exec")
            if self.command_reply is not None:
                return _ModalProcess(self, sandbox_id, argv[2], timeout, self.command_reply)
            return _ModalProcess(self, sandbox_id, argv[2], timeout)

        return SimpleNamespace(exec=_Aio(run), terminate=_Aio(terminate))

    async def _asked(self, what: str) -> None:
        fault = self.fault(what)
        if fault == "hang":
            self.holding.set()
            await self.release.wait()
        elif fault:
            raise RuntimeError(f"{fault}\nwith {KEY}")


class _Aio:
    """A function of Modal's package: `f.aio(...)` is the asynchronous form."""

    def __init__(self, function: Any) -> None:
        self.aio = function


class _ModalProcess:
    def __init__(
        self, double: ModalDouble, sandbox_id: str, command: str, seconds: float, reply: ExecResult | None = None
    ) -> None:
        self._run = lambda: double.command(sandbox_id, command, seconds, bytes(self._stdin))
        self._stdin = bytearray()
        self._result = reply
        self.stdin = SimpleNamespace(write=self._stdin.extend, write_eof=lambda: None, drain=_Aio(self._nothing))
        self.wait = _Aio(self._wait)

    async def _nothing(self) -> None:
        return None

    @property
    async def stdout(self) -> AsyncIterator[bytes]:
        if self._result is None:
            self._result = await self._run()
        for at in range(0, len(self._result.stdout), 10_000):
            yield self._result.stdout[at : at + 10_000]

    async def _wait(self) -> int:
        assert self._result is not None
        if self._result.timed_out:
            return -1
        return self._result.exit_code if self._result.exit_code is not None else 128 + (self._result.signal or 9)


@asynccontextmanager
async def hosted(double: Double, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedProvider]:
    """A provider that talks to the double."""
    for name in ("DAYTONA_API_KEY", "E2B_API_KEY", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.setenv(name, KEY)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(double.close)
        if isinstance(double, HttpDouble):
            double.port, _ = await stack.enter_async_context(serving(double.serve))
        provider: HostedProvider
        if isinstance(double, DaytonaDouble):
            provider = DaytonaProvider(f"{double.url}/api")
        elif isinstance(double, E2bDouble):
            provider = E2bProvider(double.url, double.url)
        else:
            assert isinstance(double, ModalDouble)
            monkeypatch.setitem(sys.modules, "modal", double.module())
            provider = ModalProvider()
        stack.push_async_callback(provider.close)
        stack.callback(double.release.set)
        yield provider


async def created(service: type[Double], spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a provider asks its service for when it opens a sandbox."""
    double = service.running_nothing()
    async with hosted(double, monkeypatch) as provider, await provider.open(spec):
        pass
    return double.created[0]


@asynccontextmanager
async def replying(double: Double, result: ExecResult, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """A sandbox whose service runs nothing, and says that every command ended like this."""
    double.command_reply = double.reply(_NOTHING_RAN)
    async with hosted(double, monkeypatch) as provider, await provider.open(SandboxSpec()) as sandbox:
        double.command_reply = double.reply(result)
        yield sandbox
