"""An HTTP server on its own thread that answers like a model, or fails as a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "increment_counter",
    "arguments": '{"count": 1}',
    "status": "completed",
}
SAID = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "done", "annotations": []}],
}
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """A response with a tool call, or with a text if the request holds a tool output."""
    called = any(item.get("type") == "function_call_output" for item in body["input"])
    return {"id": "resp_1", "status": "completed", "output": [SAID if called else CALL], "usage": USAGE}


class Server:
    """Answers like a model. Each request consumes one entry of `faults`; if the list is empty, the answer is correct.

    Faults: `ok`, `hang`, `close`, `reset`, `half`, `garbage`, `not_a_response`, `429`, `500`, `401`, ... While `faults`
    is empty, a request whose `model` is the name of a fault gets that fault.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.seen: Counter[str] = Counter()
        self.connections = 0
        self.closed = 0
        self.bodies: list[dict[str, Any]] = []
        self.idle_timeout: float | None = None
        self.routes = {"/v1/responses"}
        self.headers: list[bytes] = []
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with (
            contextlib.closing(writer),
            contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError),
        ):
            for number in itertools.count():
                wait = self.idle_timeout if number else None
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), wait)
                lengths = (line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                length = int(next(lengths, b"0"))
                body = orjson.loads(await reader.readexactly(length) or b"{}")
                self.headers.append(head)
                if not await self.respond(head.split()[1].decode(), body, writer):
                    break
        self.closed += 1

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        fault = self.faults.pop(0) if self.faults else str(body.get("model"))
        self.seen[fault] += 1
        self.bodies.append(body)
        if path not in self.routes:
            return await send(writer, 404, b'{"detail":"Not Found"}')
        if fault.isdigit():
            text = {"401": "Incorrect API key provided", "429": "slow down"}.get(fault, "something broke")
            return await send(writer, int(fault), orjson.dumps({"error": {"message": text}}))
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "close":
            return False
        if fault == "reset":
            writer.transport.abort()
            return False
        if fault == "half":
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"output": [')
            await writer.drain()
            return False
        if fault == "garbage":
            return await send(writer, 200, b"\x00\xff<html>no</html>")
        if fault == "not_a_response":
            return await send(writer, 200, b'{"output": [{"type": "function_call", "name": 5}]}')
        return await send(writer, 200, orjson.dumps(answer(body)))


async def send(writer: asyncio.StreamWriter, status: int, body: bytes) -> bool:
    later = b"retry-after: 0\r\n" if status in (429, 503) else b""
    writer.write(b"HTTP/1.1 %d X\r\n%scontent-length: %d\r\n\r\n%s" % (status, later, len(body), body))
    await writer.drain()
    return True


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Serve on a free local port until the block ends."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, backlog=1024)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await stop.wait()
        listening.close()
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0.01)  # closed transports release their sockets in a later iteration of the loop

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
