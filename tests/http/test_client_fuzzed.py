"""The HTTP clients against a server that splits, delays, lies about lengths, and ends or resets at any byte.

Whatever the server does, a client returns the body that the server framed, or a failure. It never hangs, and the next
request gets its own reply. aiohttp reads the same exchanges: what it refuses, the lean client refuses too.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_server import read_request, reply_with, serving
from waiting import CEILING

from ludus import Failure
from ludus.http.client import Connections, Disconnected
from ludus.models.aiohttp_client import AiohttpClient

KINDS = {"disconnected", "bad_response", "too_large"}
PROBE = b'"the reply of the next request"'
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
LARGEST = 4000


@dataclass
class Exchange:
    """What the server sends for one request, in which pieces, and how it ends."""

    sent: bytes  # all that it would send
    body: bytes | None  # what the client may read if it gets all of that; None if it must refuse it
    framed: bool  # whether the reply says where it ends
    honest: bool  # whether the client must read it: its length is right, and nothing follows it
    cuts: list[int] = field(default_factory=list)
    stop: int | None = None  # the number of bytes after which the server closes
    reset: bool = False


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    body = draw(st.binary(max_size=120) | st.binary(min_size=LARGEST - 1, max_size=LARGEST + 1))
    packed = draw(st.booleans()) and bool(body)
    payload = gzip.compress(body, mtime=0) if packed else body
    lines = [b"HTTP/1.1 200 OK", b"x-a: 1", *([b"Content-Encoding: gzip"] if packed else [])]
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    expected: bytes | None = body if len(body) <= LARGEST else None
    honest = expected is not None
    if framing == "length":
        lie = draw(st.sampled_from([0, 0, 0, -1, 1, 40]))
        said = max(0, len(payload) + lie)
        lines.append(b"Content-Length: %d" % said)
        if draw(st.integers(0, 9)) == 0:  # two lengths that differ
            lines.append(b"Content-Length: %d" % (said + 1))
            expected = None
        elif said > len(payload) or (packed and said < len(payload)):
            expected = None
        elif said < len(payload):
            expected, honest = body[:said], False
        content = payload
    elif framing == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
        size = draw(st.integers(1 + len(payload) // 8, 1 + len(payload)))
        parts = [payload[start : start + size] for start in range(0, len(payload), size)]
        liar = draw(st.none() | st.none() | st.integers(0, len(parts) - 1)) if parts else None
        chunks = [b"%x\r\n%b\r\n" % (len(part) + (number == liar), part) for number, part in enumerate(parts)]
        content = b"".join(chunks) + b"0\r\nx-trailer: 1\r\n\r\n"
        expected = expected if liar is None else None
    else:
        content = payload
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    sent = (INTERIM if draw(st.booleans()) else b"") + head + content
    end = len(sent)
    if framing != "close" and draw(st.integers(0, 3)) == 0:
        sent += draw(st.sampled_from([reply_with(b"rubbish"), b"HTTP/1.1 200 OK\r\nx: ", b"\x00noise"]))
        honest = False
    # Rubbish arrives with the last bytes of its reply: later, it could not be told from the reply to the next request.
    every_byte = end < 400 and draw(st.integers(0, 4)) == 0
    cuts = [*range(1, end)] if every_byte else sorted(draw(st.sets(st.integers(1, end - 1), max_size=5)))
    stop = draw(st.none() | st.integers(0, len(sent)))
    if framing == "close" and not packed:
        expected = body
    honest = honest and expected is not None and (stop is None or stop == len(sent))
    return Exchange(sent, expected, framing != "close", honest, cuts, stop, draw(st.booleans()))


class Bench:
    """A server and both clients, on one event loop for all examples."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.exchange = Exchange(b"", None, True, False)
        self.runner.run(self._start())

    async def _start(self) -> None:
        self._stack = AsyncExitStack()
        self.port, _ = await self._stack.enter_async_context(serving(self._script))

    def stop(self) -> None:
        self.runner.run(self._stack.aclose())
        self.runner.close()

    async def _script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            if b"/probe" in head:
                writer.write(reply_with(PROBE))
                continue
            each = self.exchange
            end = len(each.sent) if each.stop is None else each.stop
            edges = [0, *(cut for cut in each.cuts if cut < end), end]
            for start, stop in pairwise(edges):
                writer.write(each.sent[start:stop])
                await writer.drain()
                await asyncio.sleep(0)
            if each.stop is None and each.body is not None and each.framed:
                continue  # the client has its reply, and decides on its own what becomes of the connection
            if each.reset:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return

    async def ask(self, client: Connections | AiohttpClient) -> bytes | str:
        """The body that the client read, or the kind of its failure. Then the next request must get its own reply."""
        async with asyncio.timeout(CEILING):
            try:
                found: bytes | str = (await client.request("POST", "/", b"{}")).body
            except Failure as failure:
                found = failure.kind
            if isinstance(client, Connections):
                await asyncio.sleep(0)  # a connection that the server has closed is seen as closed
                with suppress(Disconnected):  # if it closes it only now
                    assert (await client.request("POST", "/probe", b"{}")).body == PROBE
        await client.close()
        return found

    def read(self, exchange: Exchange) -> tuple[bytes | str, bytes | str]:
        """What the lean client and what aiohttp reads."""
        self.exchange = exchange
        url = f"http://127.0.0.1:{self.port}"

        async def both() -> tuple[bytes | str, bytes | str]:
            lean = await self.ask(Connections(url, {}, reply_bytes=LARGEST))
            return lean, await self.ask(AiohttpClient(url, {}, name=url, reply_bytes=LARGEST))

        return self.runner.run(both())


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.stop()


@pytest.mark.slow
@given(exchange=exchanges())
def test_a_reply_is_what_the_server_framed_or_a_failure_and_never_a_hang(bench: Bench, exchange: Exchange):
    lean, other = bench.read(exchange)
    if isinstance(lean, str):
        assert lean in KINDS
        assert not exchange.honest or exchange.reset, "an honest reply was refused"
    elif exchange.framed or exchange.reset:
        assert lean == exchange.body
    else:  # the end of the connection is the end of the body, so a shorter one cannot be told from it
        assert exchange.body is not None
        assert exchange.body.startswith(lean)
    if isinstance(other, str) and not exchange.reset:  # a reset may overtake the bytes before it
        assert isinstance(lean, str), "the lean client accepted what aiohttp refuses"
    if isinstance(lean, bytes) and isinstance(other, bytes):
        assert lean == other
