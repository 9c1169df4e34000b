"""A model server with almost no cost, so that a benchmark measures the collector and not the model.

It calls a tool for the first `--turns` turns and answers with text after that. Every answer is encoded before the first
request arrives; a request costs one parse of its head and a `bytes.count` over its body. The turn is the number of tool
outputs in the body, counted as the byte strings `"function_call_output"` (Responses) or `"role":"tool"` (Chat, or with
a space after the colon). This assumes that no other string in the body is exactly that word; text that quotes it
cannot match, because JSON escapes the quotes. There is no streaming.

    python benchmarks/stub_server.py --port 0 --turns 10 --delay 1      prints {"port": N} once it listens
"""

import argparse
import asyncio
import json
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from measure import raise_file_limit

try:
    import httptools
except ImportError:
    httptools = None  # type: ignore[assignment]

BACKLOG = 16_384
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
CONNECTION_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)


def http_answer(status: str, body: dict[str, Any]) -> bytes:
    payload = json.dumps(body, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def responses_answer(turn: int, item: dict[str, Any]) -> dict[str, Any]:
    """A Responses API object with one output item."""
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "stub",
        "output": [item],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 20 * (turn + 1),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20 * (turn + 1) + 10,
        },
    }


def chat_answer(turn: int, message: dict[str, Any], finish_reason: str) -> dict[str, Any]:
    """A Chat Completions object with one choice."""
    return {
        "id": f"chatcmpl_{turn}",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": 20 * (turn + 1),
            "completion_tokens": 10,
            "total_tokens": 20 * (turn + 1) + 10,
        },
    }


def add_tokens(answers: list[dict[str, Any]], tokens: int) -> None:
    """Put token ids on each answer: half of `tokens` are generated, the other half are the tool output."""
    half = tokens // 2
    for turn, answer in enumerate(answers):
        prompt = [(7 * place) % 49_152 for place in range(half + tokens * turn)]
        written = [(7 * place) % 49_152 for place in range(len(prompt), len(prompt) + half)]
        logprobs = [round(-0.001 * (place % 997), 6) for place in range(half)]
        bundle = {"prompt_token_ids": prompt, "generation_token_ids": written, "generation_log_probs": logprobs}
        answer["output"][-1].update(bundle)


class Script:
    """All answers of the server, already encoded, indexed by the number of tool outputs in the request."""

    def __init__(self, turns: int, tool: str, arguments: str, text: str, tokens: int = 0) -> None:
        self.turns = turns
        responses, chat = [], []
        for turn in range(turns):
            call = {"call_id": f"call_{turn}", "name": tool, "arguments": arguments}
            item = {"type": "function_call", "id": f"fc_{turn}", **call, "status": "completed"}
            responses.append(responses_answer(turn, item))
            function = {"name": tool, "arguments": arguments}
            tool_call = {"id": f"call_{turn}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [tool_call]}
            chat.append(chat_answer(turn, message, "tool_calls"))
        content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
        said = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
        responses.append(responses_answer(turns, said))
        chat.append(chat_answer(turns, {"role": "assistant", "content": text}, "stop"))
        if tokens:
            add_tokens(responses, tokens)
        self._responses = [http_answer("200 OK", answer) for answer in responses]
        self._chat = [http_answer("200 OK", answer) for answer in chat]
        self._health = http_answer("200 OK", {"status": "ok"})
        self._unknown = http_answer("404 Not Found", {"error": {"message": "no such route"}})

    def answer(self, method: bytes, target: bytes, body: bytes) -> tuple[bytes, bool]:
        """The encoded answer, and whether it comes from the model and so is delayed."""
        path = target.partition(b"?")[0]
        if method == b"POST" and path == b"/v1/responses":
            outputs = body.count(b'"function_call_output"')
            return self._responses[min(outputs, self.turns)], True
        if method == b"POST" and path == b"/v1/chat/completions":
            outputs = body.count(b'"role":"tool"') + body.count(b'"role": "tool"')
            return self._chat[min(outputs, self.turns)], True
        if method == b"GET" and path == b"/health":
            return self._health, False
        return self._unknown, False


class Connection(asyncio.Protocol):
    """One keep-alive connection, parsed by hand; bodies need a Content-Length."""

    def __init__(self, script: Script, delay: float, keepalive_timeout: float) -> None:
        self.script, self.delay, self.keepalive_timeout = script, delay, keepalive_timeout
        self.idle: asyncio.TimerHandle | None = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses
        self.loop = asyncio.get_running_loop()
        self.start_idle_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_idle_timer()

    def data_received(self, data: bytes) -> None:
        self.stop_idle_timer()
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            length = CONTENT_LENGTH.search(head)
            start = end + 4
            stop = start + (int(length[1]) if length else 0)
            if len(self.buffer) < stop:
                return
            body, self.buffer = self.buffer[start:stop], self.buffer[stop:]
            method, _, rest = head.partition(b" ")
            self.reply(method, rest.partition(b" ")[0], body, not CONNECTION_CLOSE.search(head))

    def reply(self, method: bytes, target: bytes, body: bytes, keep_alive: bool) -> None:
        answer, from_model = self.script.answer(method, target, body)
        if from_model and self.delay:
            self.loop.call_later(self.delay, self.send, answer, keep_alive)
        else:
            self.send(answer, keep_alive)

    def send(self, answer: bytes, keep_alive: bool) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        if keep_alive:
            self.start_idle_timer()
        else:
            self.transport.close()

    def start_idle_timer(self) -> None:
        if self.keepalive_timeout:
            self.idle = self.loop.call_later(self.keepalive_timeout, self.transport.close)

    def stop_idle_timer(self) -> None:
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None


class ParsedConnection(Connection):
    """A connection parsed by httptools, which also reads chunked bodies."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.parser: Any = httptools.HttpRequestParser(self)
        self.target, self.chunks = b"", list[bytes]()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.parser = None  # break the reference cycle of parser and connection

    def data_received(self, data: bytes) -> None:
        self.stop_idle_timer()
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.send(http_answer("400 Bad Request", {"error": {"message": "not HTTP/1.1"}}), keep_alive=False)

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_body(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def on_message_complete(self) -> None:
        target, self.target = self.target, b""
        body = b"".join(self.chunks)
        self.chunks.clear()
        self.reply(self.parser.get_method(), target, body, self.parser.should_keep_alive())


async def serve(options: argparse.Namespace) -> None:
    script = Script(options.turns, options.tool, options.arguments, options.text, options.tokens)
    connection = Connection if httptools is None else ParsedConnection
    server = await asyncio.get_running_loop().create_server(
        lambda: connection(script, options.delay, options.keepalive_timeout),
        host="127.0.0.1",
        port=options.port,
        backlog=BACKLOG,
        ssl=tls_context(options.certificate),
    )
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


def tls_context(certificate: str | None) -> ssl.SSLContext | None:
    """TLS with the key and the certificates of a PEM file."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return new_event_loop


def main() -> None:
    parser = argparse.ArgumentParser(description="A stub model server: tool calls, then text.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--turns", type=int, default=1, help="tool calls before the text")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each model answer")
    parser.add_argument("--tool", default="increment_counter")
    parser.add_argument("--arguments", default='{"count": 1}', help="arguments of every tool call, as JSON")
    parser.add_argument("--text", default="done", help="the final answer")
    parser.add_argument("--tokens", type=int, default=0, help="token ids that each turn adds; sent with every answer")
    parser.add_argument("--keepalive-timeout", type=float, default=0.0, help="seconds; 0: idle connections stay open")
    parser.add_argument("--certificate", help="speak TLS, with the key and the certificates of this PEM file")
    options = parser.parse_args()
    raise_file_limit()
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(options))


if __name__ == "__main__":
    main()
