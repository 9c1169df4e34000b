"""A model server with almost no cost, so that a benchmark measures the collector and not the model.

By default it calls every tool of a request in the first `--turns` turns, then answers with text. With `--tool` it calls
only that tool, and its answers are encoded before the first request arrives. `GET /stats` counts the answers, the
seconds of intended delay, and the seconds that answers were late beyond it.

    python -m ludus_bench.stub_server --turns 10 --delay 1      prints {"port": N} once it listens
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, cast

import httptools

from ludus.errors import UserError
from ludus.runtime.running import raise_file_limit, run
from ludus_bench.delays import Delay
from ludus_bench.stub_script import FixedScript, StubScript, SyntheticScript, http_answer

BACKLOG = 16_384


class StubServer:
    """State that all connections share: the answers, the delays and the counts."""

    def __init__(self, script: StubScript, delay: Delay, keepalive_timeout: float) -> None:
        self.script, self.keepalive_timeout = script, keepalive_timeout
        self._delay, self._random = delay, Random()
        self._answers, self._delayed, self._late, self._received, self._sent = 0, 0.0, 0.0, 0, 0

    def reply(self, method: bytes, target: bytes, body: bytes, send: Callable[[bytes], None]) -> None:
        """Answer a request, after the delay if the model is asked."""
        path = target.partition(b"?")[0]
        answer = self.script.answer(method, path, body)
        if answer is None:
            send(self._other(method, path))
            return
        seconds = self._delay.draw(self._random)
        self._answers += 1
        self._delayed += seconds
        self._received += len(body)
        self._sent += len(answer)
        if seconds:
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self._send_late, answer, loop.time() + seconds, send)
        else:
            send(answer)

    def _send_late(self, answer: bytes, due: float, send: Callable[[bytes], None]) -> None:
        self._late += max(0.0, asyncio.get_running_loop().time() - due)
        send(answer)

    def _other(self, method: bytes, path: bytes) -> bytes:
        if method == b"GET" and path == b"/health":
            return http_answer("200 OK", {"status": "ok"})
        if method == b"GET" and path == b"/stats":
            return http_answer("200 OK", self._stats())
        return http_answer("404 Not Found", {"error": {"message": "no such route"}})

    def _stats(self) -> dict[str, float]:
        return {
            "answers": self._answers,
            "delayed_s": self._delayed,
            "late_s": self._late,
            "cpu_s": time.process_time(),
            "received_bytes": self._received,
            "sent_bytes": self._sent,
        }


class StubConnection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, server: StubServer) -> None:
        self._server = server
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for requests."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses
        self._parser: Any = httptools.HttpRequestParser(self)
        self._target, self._chunks = b"", list[bytes]()
        self._start_idle_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the parser."""
        self._stop_idle_timer()
        self._parser = None  # break the reference cycle of parser and connection

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self._stop_idle_timer()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._send(http_answer("400 Bad Request", {"error": {"message": "not HTTP/1.1"}}), keep_alive=False)

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._target += url

    def on_body(self, chunk: bytes) -> None:
        """Called by the parser."""
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        """Called by the parser when a request is whole."""
        target, self._target = self._target, b""
        body = b"".join(self._chunks)
        self._chunks.clear()
        keep_alive = self._parser.should_keep_alive()
        self._server.reply(self._parser.get_method(), target, body, lambda answer: self._send(answer, keep_alive))

    def _send(self, answer: bytes, keep_alive: bool) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(answer)
        if keep_alive:
            self._start_idle_timer()
        else:
            self._transport.close()

    def _start_idle_timer(self) -> None:
        if self._server.keepalive_timeout:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(self._server.keepalive_timeout, self._transport.close)

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


async def _serve(options: argparse.Namespace) -> None:
    script: StubScript = SyntheticScript(options.turns)
    if options.tool is not None:
        script = FixedScript(options.turns, options.tool, options.arguments, options.text, options.tokens)
    stub = StubServer(script, Delay.parse(options.delay), options.keepalive_timeout)
    loop = asyncio.get_running_loop()
    end, ports = asyncio.Event(), list[int]()
    for number in range(options.ports):
        server = await loop.create_server(
            lambda: StubConnection(stub),
            host="127.0.0.1",
            port=options.port if number == 0 else 0,
            backlog=BACKLOG,
            ssl=_tls_context(options.certificate),
        )
        ports.append(server.sockets[0].getsockname()[1])
    loop.add_signal_handler(signal.SIGTERM, end.set)
    if options.end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), end.set)
    print(json.dumps({"port": ports[0], "ports": ports}), flush=True)
    await end.wait()


def _tls_context(certificate: str | None) -> ssl.SSLContext | None:
    """TLS with the key and the certificates of a PEM file."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description="A stub model server: tool calls, then text.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--ports", type=int, default=1, help="listen on so many ports; all but the first are free ones")
    parser.add_argument("--turns", type=int, default=1, help="turns with tool calls before the text")
    parser.add_argument("--delay", default="0", help="seconds before each answer: 1, 0.5..2, exp:1, lognormal:1,0.5")
    parser.add_argument("--tool", help="call this tool, whatever a request offers")
    parser.add_argument("--arguments", default="{}", help="with --tool: the arguments, as JSON")
    parser.add_argument("--text", default="done", help="with --tool: the final answer")
    parser.add_argument("--tokens", type=int, default=0, help="with --tool: token ids that each turn adds")
    parser.add_argument("--keepalive-timeout", type=float, default=0.0, help="seconds; 0: idle connections stay open")
    parser.add_argument("--certificate", help="speak TLS, with the key and the certificates of this PEM file")
    parser.add_argument("--end-with-stdin", action="store_true", help="end when stdin does: the parent is gone")
    options = parser.parse_args()
    raise_file_limit()
    try:
        with suppress(KeyboardInterrupt):
            run(_serve(options))
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
