"""A model server for the comparison of frameworks: it answers after a delay, or fails for chosen tasks, and counts.

    python benchmarks/framework_jobs/stub.py --tool-calls 9 --delay 0.25      prints its URL

It finds the task's number in the request. While the request offers a tool and holds fewer than `--tool-calls` outputs
of tools, the answer calls the tool. With `--fail-every 10` each request of the tasks 3, 13, 23, ... gets a 500. It
prints a second line when the first request comes. `GET /stats` has the counts; `GET /times` has, for each finished
task, the arrival of its first request, how long its requests were held, and when its last answer left.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from job import answer
from ludus_bench.stub_script import chat_answer, http_answer, responses_answer
from ludus_bench.stub_server import BACKLOG, StubConnection

from ludus.dialects.chat_stream import chat_chunks
from ludus.runtime.running import raise_file_limit, run

_TASK = re.compile(rb"Task <(\d+)>")
_TOOL_OUTPUT = re.compile(rb'"function_call_output"|"role": ?"tool"')
_OFFERED = re.compile(rb'"name": ?"([^"]*(?:look_up|bash|shell)[^"]*)"')
_STREAMED = re.compile(rb'"stream": ?true')


@dataclass
class Asked:
    """What one task asked, in the seconds of the wall clock."""

    first: float
    held_s: float = 0.0
    last: float = 0.0
    answers: int = 0


class Stub:
    """What all connections share: the answers and the counts."""

    keepalive_timeout = 0.0  #: idle connections stay open

    def __init__(self, options: argparse.Namespace) -> None:
        self._fail_every, self._delay, self._tool_calls = options.fail_every, options.delay, options.tool_calls
        self._tasks: dict[int, Asked] = {}
        self._requests = self._held = self._most_held = 0

    def reply(self, method: bytes, target: bytes, body: bytes, send: Callable[[bytes], None]) -> None:
        """Answer a request of either API after the delay."""
        path = target.partition(b"?")[0]
        if path == b"/stats":
            send(http_answer("200 OK", self._stats()))
        elif path == b"/times":
            done = [task for task in self._tasks.values() if task.answers]
            send(http_answer("200 OK", {"times": [[task.first, task.held_s, task.last] for task in done]}))
        elif method == b"GET":
            send(http_answer("200 OK", {"object": "list", "data": [{"id": "stub", "object": "model"}]}))
        else:
            self._model(path, body, send)

    def _model(self, path: bytes, body: bytes, send: Callable[[bytes], None]) -> None:
        found = _TASK.search(body)
        number = int(found[1]) if found else -1
        now = time.time()
        if not self._requests:
            print(f"first {now}", flush=True)
        self._requests += 1
        task = self._tasks.setdefault(number, Asked(now))
        if self._fail_every and number % self._fail_every == 3:
            send(http_answer("500 Internal Server Error", {"error": {"message": "the model server is down"}}))
            return
        self._held += 1
        self._most_held = max(self._most_held, self._held)
        asyncio.get_running_loop().call_later(self._delay, self._send, path, body, number, task, now, send)

    def _send(
        self, path: bytes, body: bytes, number: int, task: Asked, arrived: float, send: Callable[[bytes], None]
    ) -> None:
        turn = len(_TOOL_OUTPUT.findall(body))
        offered = _OFFERED.search(body) if turn < self._tool_calls else None
        answered = _answer(path, offered[1].decode() if offered else None, number, turn)
        if path.endswith(b"/chat/completions") and _STREAMED.search(body):
            send(_streamed(answered))
        else:
            send(http_answer("200 OK", answered))
        task.last = time.time()
        task.held_s += task.last - arrived
        handed_in = offered is not None and b"look_up" not in offered[1] and turn > 0  # the last call of a program
        task.answers += offered is None or handed_in
        self._held -= 1

    def _stats(self) -> dict[str, Any]:
        done = [task.answers for task in self._tasks.values() if task.answers]
        repeated = sum(done) - len(done)
        return {"finished": len(done), "repeated": repeated, "requests": self._requests, "most_held": self._most_held}


def _answer(path: bytes, tool: str | None, number: int, turn: int) -> dict[str, Any]:
    """An answer of either API: a call of the tool, or the final text."""
    if path.endswith(b"/responses"):
        if tool is None:
            content = [{"type": "output_text", "text": answer(number), "annotations": []}]
            said = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
            return responses_answer(turn, said)
        called = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "status": "completed"}
        return responses_answer(turn, {**called, "name": tool, "arguments": _arguments(tool, number, turn)})
    if tool is None:
        return chat_answer(turn, {"role": "assistant", "content": answer(number)}, "stop")
    function = {"name": tool, "arguments": _arguments(tool, number, turn)}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return chat_answer(turn, {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")


def _arguments(tool: str, number: int, turn: int) -> str:
    """The task's number, or for a program's shell the commands that write the answer and hand it in."""
    if "look_up" in tool:
        return orjson.dumps({"number": number}).decode()
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" if turn else f"echo {answer(number)} > answer.txt"
    return orjson.dumps({"command": command}).decode()


def _streamed(completion: dict[str, Any]) -> bytes:
    """A chat completion as server-sent events."""
    events = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chat_chunks(completion))
    payload = events + b"data: [DONE]\n\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


async def _serve(options: argparse.Namespace) -> None:
    stub = Stub(options)
    server = await asyncio.get_running_loop().create_server(
        lambda: StubConnection(stub),  # type: ignore[arg-type]
        host="127.0.0.1",
        port=0,
        backlog=BACKLOG,
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--tool-calls", type=int, default=0, help="calls of a tool before the final answer")
    options = parser.parse_args()
    raise_file_limit()
    run(_serve(options))


if __name__ == "__main__":
    main()
