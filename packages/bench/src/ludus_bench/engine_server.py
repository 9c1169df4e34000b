"""The model of an inference server behind HTTP: answers take the time that its batch and its caches make of them.

`GET /metrics` reports what vLLM would. Every item of a request is a block of the prompt, of a fixed number of tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from itertools import count
from typing import Any

import orjson

from ludus_bench.delays import Delay
from ludus_bench.engine_model import Block, EngineModel, EngineRequest
from ludus_bench.stub_script import SyntheticScript, http_answer
from ludus_bench.stub_server import BACKLOG, StubConnection, StubServer

_numbers = count()
_TEXT = ("type", "role", "call_id", "name", "arguments", "content", "output")


class EngineServer(StubServer):
    """One server. `drains` makes it answer 503, as a server does that is about to stop."""

    def __init__(self, engine: EngineModel, *, turns: int, item_tokens: int = 400, output_tokens: int = 100) -> None:
        super().__init__(SyntheticScript(turns), Delay.parse("0"), 0.0)
        self.engine, self.drains, self.url = engine, False, ""
        self._item_tokens, self._output_tokens = item_tokens, output_tokens
        self._open: dict[EngineRequest, Callable[[], None]] = {}

    def reply(self, method: bytes, target: bytes, body: bytes, send: Callable[[bytes], None]) -> None:
        """Answer a request when the engine has answered it."""
        path = target.partition(b"?")[0]
        if path == b"/metrics":
            text = self.engine.metrics().encode()
            send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
            return
        encoded = self.script.answer(method, path, body)
        if encoded is None:
            send(self._other(method, path))
        elif self.drains:
            send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        else:
            answer = orjson.loads(encoded.partition(b"\r\n\r\n")[2])
            for item in answer["output"]:
                if "call_id" in item:  # each rollout has a history of its own
                    item["call_id"] = f"call_{next(_numbers)}"
            blocks = prompt_blocks(orjson.loads(body)["input"], self._item_tokens)
            name = prompt_blocks(answer["output"], self._output_tokens, blocks[-1][0])[-1][0]
            output = self._random.randrange(self._output_tokens // 2, self._output_tokens * 3 // 2)
            request = EngineRequest(blocks, output, name)
            self._open[request] = lambda: send(http_answer("200 OK", answer))
            self.engine.submit(request)

    @asynccontextmanager
    async def serving(self, speed: float = 1.0) -> AsyncIterator[EngineServer]:
        """Serve on a free port. The engine's time runs `speed` times as fast as ours."""
        server = await asyncio.get_running_loop().create_server(
            lambda: StubConnection(self), "127.0.0.1", 0, backlog=BACKLOG
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        stepping = asyncio.create_task(self._step(speed))
        try:
            yield self
        finally:
            stepping.cancel()
            await asyncio.gather(stepping, return_exceptions=True)
            server.close()

    async def _step(self, speed: float) -> None:
        while True:
            await asyncio.sleep(self.engine.slice_seconds / speed)
            for request in self.engine.step():
                self._open.pop(request)()


def prompt_blocks(items: list[dict[str, Any]], tokens: int, before: Any = b"") -> list[Block]:
    """The blocks of a prompt: each is named by its item and by all items before it. Calls of one turn are one block."""
    blocks: list[Block] = []
    for number, item in enumerate(items, 1):
        text = orjson.dumps([item.get(field) for field in _TEXT], option=orjson.OPT_SORT_KEYS)
        before = blake2b(before + text, digest_size=8).digest()
        following = items[number].get("type") if number < len(items) else None
        if not item.get("type") == following == "function_call":
            blocks.append((before, tokens))
    return blocks
