"""A hostile MCP server over HTTP gets no key, no memory and no verdict: what is not MCP is a failure of the rollout."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import lazily
import pytest
from mcp_sessions import outputs, play

import ludus

lazily.needs("mcp", "pip install 'ludus-gym[mcp]'")

TOOL = {"name": "add", "inputSchema": {"type": "object"}}
CONTENT = {"content": [{"type": "text", "text": "5"}]}
Reply = Callable[["Hostile", Any], None]


class Hostile(BaseHTTPRequestHandler):
    """Opens sessions and lists a tool as it should; `attack` answers the method that a test names."""

    method, attack = "", staticmethod(lambda handler, number: None)
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message["method"], message.get("id")
        if method == self.method:
            self.attack(self, number)
        elif method == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
            self.result(number, {"protocolVersion": version, **about})
        elif number is None:
            self.reply(b"", 202)
        else:
            self.result(number, {"tools": [TOOL]} if method == "tools/list" else CONTENT)

    def do_GET(self) -> None:
        self.reply(b"", 405)

    do_DELETE = do_GET

    def result(self, number: Any, result: Any) -> None:
        self.reply(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())

    def reply(self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"content-type": kind, "content-length": str(len(body)), **named}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def hostile(method: str, attack: Reply) -> Iterator[str]:
    handler = type("Handler", (Hostile,), {"method": method, "attack": staticmethod(attack)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()


def endless(handler: Hostile, number: Any) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b"x" * (1 << 20))
    except OSError:
        pass


def compressed(handler: Hostile, number: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": CONTENT}).encode()
    handler.reply(gzip.compress(body), content_encoding="gzip")


def many(handler: Hostile, number: Any) -> None:
    handler.result(number, {"tools": [{**TOOL, "name": f"tool_{count}"} for count in range(10_001)]})


ATTACKS: dict[str, tuple[str, Reply, str]] = {
    "a page": ("tools/call", lambda handler, _: handler.reply(b"<html>", kind="text/html"), "Unexpected content type"),
    "no id": ("tools/call", lambda handler, _: handler.reply(b'{"jsonrpc": "2.0", "result": {}}'), "JSON"),
    "no MCP": (
        "tools/call",
        lambda handler, number: handler.result(number, {"content": [{"type": "image"}]}),
        "not MCP",
    ),
    "without an end": ("tools/call", endless, "more than 64 MiB"),
    "a list without an end": ("tools/list", endless, "more than 64 MiB"),
    "compressed": ("tools/call", compressed, "compressed"),
    "many tools": ("tools/list", many, "more than 10,000 tools"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_reply_that_is_not_mcp_fails_the_rollout_without_a_reward(name: str) -> None:
    method, attack, words = ATTACKS[name]
    with hostile(method, attack) as url:
        rollout = play({"url": url}, {"call": "add", "arguments": {}}, "5")
    assert rollout.error is not None
    assert (rollout.reward, rollout.error.kind) == (None, "bad_response")
    assert words in str(rollout.error)


@pytest.mark.parametrize("method", ["initialize", "tools/call"])
def test_a_redirect_is_not_followed_and_the_key_stays_here(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_THE_TEST", "s3cret-value")
    heard: list[Any] = []

    def listen(handler: Hostile, number: Any) -> None:
        heard.append(handler.headers["authorization"])
        handler.result(number, CONTENT)

    headers = {"Authorization": "Bearer ${KEY_OF_THE_TEST}"}
    with (
        hostile(method, listen) as other,
        hostile(method, lambda handler, _: handler.reply(b"", 307, location=other)) as url,
    ):
        rollout = play({"url": url, "headers": headers}, {"call": "add", "arguments": {}}, "5")
    assert rollout.error is not None
    assert rollout.error.kind == "bad_response"
    assert heard == []


def test_an_address_without_a_server_is_not_called_a_models() -> None:
    with (
        hostile("initialize", lambda handler, _: handler.reply(b"gone", 404)) as url,
        pytest.raises(ludus.UserError, match="404: gone. Check the URL, and the name of the model if it is one"),
    ):
        play({"url": url}, "5")


def test_the_first_of_several_answers_to_a_call_counts() -> None:
    def twice(handler: Hostile, number: Any) -> None:
        answers = [{"content": [{"type": "text", "text": text}]} for text in ("5", "6")]
        lines = [json.dumps({"jsonrpc": "2.0", "id": number, "result": answer}) for answer in answers]
        handler.reply("".join(f"data: {line}\n\n" for line in lines).encode(), kind="text/event-stream")

    with hostile("tools/call", twice) as url:
        rollout = play({"url": url}, {"call": "add", "arguments": {}}, "5")
    assert rollout.reward == 1.0
    assert outputs(rollout) == ["5"]
