"""The MCP servers and the users that a `task.toml` names."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from harbor_boxes import TASKS, needs_images, new_cache, played
from sandboxes import needs

from ludus import Failure
from ludus.environments.terminal.mcp_boxes import ProgramServer, _leading_to
from ludus.environments.terminal.users import identity
from ludus.integrations.mcp_servers import StderrFile
from ludus.runtime.running import run
from ludus.sandbox import SandboxError
from ludus.sandbox.oci_images import UnpackedImage

pytest.importorskip("mcp")

#: A server on standard input and output that counts its calls.
STDIO = r"""#!/bin/bash
count=0
echo "this line is no message"
while IFS= read -r line; do
    [[ $line =~ \"id\":([0-9]+) ]] || continue
    id=${BASH_REMATCH[1]}
    case $line in
        *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"a","version":"1"}}';;
        *'"tools/list"'*) result='{"tools":[{"name":"next","description":"Count.","inputSchema":{"type":"object"}}]}';;
        *'"tools/call"'*) ((++count == 3)) && { echo "tired" >&2; exit 3; }
            result='{"content":[{"type":"text","text":"'$count'"}]}';;
        *) result='{}';;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"""  # noqa: E501

#: A server over HTTP, in both of its transports.
HTTP = r"""
import http.server, json, queue, sys

events = queue.Queue()

def answer(message):
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "a", "version": "1"}},
        "tools/list": {"tools": [{"name": "next", "description": "", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "42"}]},
    }
    return {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/sse":
            return self.reply(405, b"")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
        while True:
            self.wfile.write(b"event: message\ndata: " + json.dumps(events.get()).encode() + b"\n\n")

    def do_POST(self):
        assert self.headers["host"].startswith("localhost"), self.headers["host"]
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            return self.reply(202, b"")
        if self.path == "/messages":
            events.put(answer(message))
            return self.reply(202, b"")
        self.reply(200, json.dumps(answer(message)).encode())

    def do_DELETE(self):
        self.reply(200, b"")

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Handler).serve_forever()
"""  # noqa: E501

CALL = {"call": "keeper__next", "arguments": {}}


def asking(*names: str) -> list[Any]:
    return [*({"call": name, "arguments": {}} for name in names), "Done."]


def outputs(rollout: Any) -> list[str]:
    return [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return new_cache(monkeypatch)


def with_toml(folder: Path, text: str) -> Path:
    shutil.copytree(TASKS / "hello", folder)
    with (folder / "task.toml").open("a") as file:
        file.write(text)
    return folder


def stdio_task(folder: Path) -> Path:
    table = (
        '\n[[environment.mcp_servers]]\nname = "keeper"\ntransport = "stdio"\ncommand = "bash"\nargs = ["/srv.sh"]\n'
    )
    task = with_toml(folder, table)
    (task / "environment/srv.sh").write_text(STDIO)
    with (task / "environment/Dockerfile").open("a") as file:
        file.write("\nCOPY srv.sh /srv.sh\n")
    return task


@needs_images
def test_a_model_calls_the_tools_of_a_server_that_runs_in_its_box(base: dict[str, Any], tmp_path: Path) -> None:
    task = stdio_task(tmp_path / "task")
    write = {"call": "bash", "arguments": {"command": "echo Hello, world! > hello.txt; pgrep -f srv.sh || true"}}
    (rollout,) = played(f"harbor:{task}", [CALL, write, CALL, "Done."], **base)
    assert rollout.error is None
    first, _, second = outputs(rollout)
    assert (first, second) == ("1", "2")  # one server for the whole rollout


@needs_images
def test_a_server_that_dies_is_a_failure_with_its_last_words(base: dict[str, Any], tmp_path: Path) -> None:
    task = stdio_task(tmp_path / "task")
    (rollout,) = played(f"harbor:{task}", [CALL, CALL, CALL, "Done."], **base)
    assert rollout.error is not None
    assert rollout.reward is None
    assert "the task's MCP server keeper: the server is gone" in rollout.error.cause
    assert "tired" in rollout.error.cause


def breaking(command: str) -> dict[str, Any]:
    return {"call": "bash", "arguments": {"command": f"echo hello > hello.txt; {command}"}}


#: The pattern does not match the command that holds it.
KILL = "for p in /proc/[0-9]*; do grep -q '[s]rv.sh' $p/cmdline && kill -9 ${p#/proc/}; done; true"


@needs_images
def test_a_model_that_breaks_a_server_sees_the_error_and_is_judged(base: dict[str, Any], tmp_path: Path) -> None:
    task = stdio_task(tmp_path / "task")
    (rollout,) = played(f"harbor:{task}", [breaking(KILL), CALL, "Done."], **base)
    assert (rollout.error, rollout.reward) == (None, 1.0)
    assert "the server is gone" in outputs(rollout)[1]
    stop = breaking(KILL.replace("-9", "-STOP"))
    (rollout,) = played(f"harbor:{task}", [stop, CALL, "Done."], **base, **{"resources.step_timeout": 1})
    assert (rollout.error, rollout.reward) == (None, 1.0)
    assert "tool `keeper__next` of the task's MCP server timed out after 1 s" in outputs(rollout)[1]


@needs_images
@pytest.mark.parametrize("command", ["rm /srv.sh", "echo 'while true; do echo {}; done' > /srv.sh", "rm -f /bin/bash"])
def test_a_step_that_begins_without_its_server_ends_the_task_if_the_model_broke_it(
    base: dict[str, Any], tmp_path: Path, command: str
) -> None:
    task = stdio_task(tmp_path / "task")
    with (task / "task.toml").open("a") as file:
        file.write('\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n')
    for name in ("one", "two"):
        (task / "steps" / name).mkdir(parents=True)
        shutil.copy(task / "instruction.md", task / "steps" / name)
    finish = {"call": "finish_step", "arguments": {}}
    (rollout,) = played(f"harbor:{task}", [breaking(command), finish, CALL, "Done."], **base)
    assert (rollout.error, rollout.reward) == (None, 0.5)  # the second step was not reached
    assert "the next step cannot begin in the box as you left it" in outputs(rollout)[1]


@needs_images
def test_a_server_that_does_not_start_is_a_failure_in_one_line(base: dict[str, Any], tmp_path: Path) -> None:
    task = with_toml(
        tmp_path / "task",
        '\n[[environment.mcp_servers]]\nname = "keeper"\ntransport = "stdio"\ncommand = "no-such-program"\n',
    )
    (rollout,) = played(f"harbor:{task}", ["Done."], **base)
    assert rollout.error is not None
    assert "the task's MCP server keeper" in rollout.error.cause
    assert "no-such-program: command not found" in rollout.error.cause


@needs("bubblewrap")
@pytest.mark.parametrize(("transport", "path"), [("streamable-http", "/mcp"), ("sse", "/sse")])
def test_servers_that_listen_in_the_box_are_reached(tmp_path: Path, transport: str, path: str) -> None:
    url = f"http://localhost:8123{path}"
    table = f'\n[[environment.mcp_servers]]\nname = "keeper"\ntransport = "{transport}"\nurl = "{url}"\n'
    task = with_toml(tmp_path / "task", table)
    (task / "environment/Dockerfile").unlink()
    (task / "environment/server.py").write_text(HTTP)
    (task / "environment/setup.sh").write_text("python3 server.py > /dev/null 2>&1 &\n")
    (rollout,) = played(f"harbor:{task}", asking("keeper__next", "keeper__next"), **{"resources.sandbox.warm": 0})
    assert rollout.error is None
    assert outputs(rollout) == ["42", "42"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('name = "a"\ntransport = "stdio"\n', "the transport stdio needs command"),
        ('name = "a"\nurl = "http://localhost:1/"\ncommand = "x"\n', "the transport sse needs url and nothing else"),
        ('name = "a b"\nurl = "http://localhost:1/"\n', "environment.mcp_servers.0.name"),
    ],
)
def test_a_server_that_cannot_be_is_refused_in_one_line(tmp_path: Path, table: str, problem: str) -> None:
    from ludus import UserError

    task = with_toml(tmp_path / "task", f"\n[[environment.mcp_servers]]\n{table}")
    with pytest.raises(UserError, match=problem) as caught:
        played(f"harbor:{task}", ["Done."], **{"resources.bases": {"ubuntu:*": str(tmp_path)}})
    assert "\n" not in str(caught.value)


@needs("bubblewrap")
def test_a_server_of_another_machine_is_refused(tmp_path: Path) -> None:
    task = with_toml(tmp_path / "task", '\n[[environment.mcp_servers]]\nname = "far"\nurl = "http://db:8000/sse"\n')
    (task / "environment/Dockerfile").unlink()
    (rollout,) = played(f"harbor:{task}", ["Done."], **{"resources.sandbox.warm": 0})
    assert rollout.error is not None
    assert (rollout.error.kind, "far is at db, and servers run in the task's own box" in rollout.error.cause) == (
        "bad_row",
        True,
    )


SEES = """#!/bin/bash
[ "$HOME $USER" = "/home/judge judge" ] && [ "$(cat /home/worker/made)" = "/home/worker worker" ]
echo $((1 - $?)) > /logs/verifier/reward.txt
"""


@needs_images
def test_agent_and_verifier_have_the_names_and_homes_of_their_users(base: dict[str, Any], tmp_path: Path) -> None:
    task = with_toml(tmp_path / "task", "")
    toml = (task / "task.toml").read_text()
    toml = toml.replace("[verifier]", '[verifier]\nuser = "judge"').replace("[agent]", "[agent]\nuser = 1001")
    (task / "task.toml").write_text(toml)
    with (task / "environment/Dockerfile").open("a") as file:
        for line in ("worker:x:1001:1001::/home/worker:/bin/sh", "judge:x:1002:1002::/home/judge:/bin/sh"):
            file.write(f"\nRUN echo '{line}' >> /etc/passwd")
        file.write("\nRUN mkdir -p /home/worker /home/judge\n")
    (task / "tests/test.sh").write_text(SEES)
    (task / "solution/solve.sh").write_text('echo "$HOME $USER" > ~/made\n')
    (rollout,) = played(f"harbor:{task}", **base)
    assert (rollout.reward, rollout.error) == (1.0, None), rollout.verdict
    (task / "task.toml").write_text(toml.replace('"judge"', '"nobody-here"'))
    (rollout,) = played(f"harbor:{task}", **base)
    assert rollout.error is not None
    assert rollout.error.cause == (
        "task.toml: verifier.user is nobody-here, and the image has no such user: "
        "add RUN useradd -m nobody-here to its Dockerfile"
    )


def test_an_image_names_its_own_user(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nme:x:7:7::/srv/me:/bin/sh\n")
    image = UnpackedImage(tmp_path, user="me:staff")
    assert identity(None, image) == {"HOME": "/srv/me", "USER": "me", "LOGNAME": "me"}
    assert identity("root", image)["HOME"] == "/root"
    assert identity(99, image) == {"HOME": "/", "USER": "99", "LOGNAME": "99"}
    assert identity("me", None) == {}
    with pytest.raises(Failure, match="agent.user is you"):
        identity("you", image, "agent.user")


class Box:
    """A sandbox whose script connects to us, and then goes wrong."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def route(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    async def exec(self, command: list[str], **limits: Any) -> Any:
        _, writer = await asyncio.open_connection("127.0.0.1", int(command[4]))
        try:
            await asyncio.sleep(0.05)  # the connection is accepted
            raise self.error
        finally:
            writer.close()

    async def read(self, path: str, limit: int) -> bytes:
        return b""


@pytest.mark.parametrize("error", [SandboxError("the box is gone"), asyncio.CancelledError()])
def test_the_connection_of_a_script_that_fails_is_closed(error: BaseException) -> None:
    """Closing an event loop with an open connection raises `Device or resource busy` where warnings are errors."""

    async def main() -> None:
        server = ProgramServer(Box(error), ["server"], "/", "a server")  # type: ignore[arg-type]
        with StderrFile() as stderr, pytest.raises(type(error)):
            async with server.transport(stderr):
                pass

    run(main())


@pytest.mark.parametrize("turns", range(12))
def test_a_connection_that_arrives_while_its_server_ends_is_closed(turns: int) -> None:
    async def main() -> None:
        async with _leading_to(Box(SandboxError("the box is gone")), 1) as port:  # type: ignore[arg-type]
            client = socket.create_connection(("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
        client.close()
        await asyncio.sleep(0.05)

    run(main())
