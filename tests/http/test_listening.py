"""How replies leave a server: the head and the body together, in one TCP segment."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import CEILING

from ludus.http.app import App
from ludus.http.listening import Listening, bind
from ludus.http.messages import EVENTS, Incoming, Reply

uvloop = pytest.importorskip("uvloop")
needs_tcp_info = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux counts the segments")


class Talking(App):
    """Replies with a short body, a long one, or a stream whose second event waits until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.routes |= {
            ("POST", "/echo"): self.echo,
            ("GET", "/long"): self.long,
            ("GET", "/none"): self.none,
            ("GET", "/events"): self.events,
        }

    async def echo(self, incoming: Incoming) -> Reply:
        return Reply(incoming.body)

    async def long(self, incoming: Incoming) -> Reply:
        return Reply(b"x" * 3_000_000)

    async def none(self, incoming: Incoming) -> Reply:
        return Reply(b"")

    async def events(self, incoming: Incoming) -> Reply:
        async def pieces() -> Any:
            await asyncio.to_thread(self.go_on.wait, CEILING)
            yield b"data: 1\n\n"
            yield b"data: 2\n\n"

        return Reply(kind=EVENTS, pieces=pieces())


@contextmanager
def listening(app: App, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[socket.socket]:
    """A connection to an application that is served on another thread."""
    loop, bound = new_loop(), bind("test", "127.0.0.1", 0)
    server = Listening(app, bound)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.begin(), loop).result(CEILING)
        with socket.create_connection(bound.getsockname(), timeout=CEILING) as connection:
            yield connection
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(CEILING)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        bound.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def connection(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with listening(Talking(), request.param) as connected:
        yield connected


def send(connection: socket.socket, line: str, body: bytes = b"", more: str = "") -> None:
    head = f"{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        piece = connection.recv(1 << 20)
        assert piece, f"closed after {found[-200:]!r}"
        found += piece
    return found


def segments(connection: socket.socket) -> int:
    """How many TCP segments with data the connection has received: `tcpi_data_segs_in`."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("I", info, 152)[0])


@needs_tcp_info
def test_head_and_body_leave_in_one_segment(connection: socket.socket):
    for number in range(1, 6):
        send(connection, "POST /echo", b'{"a":1}')
        assert read_until(connection, b'{"a":1}').startswith(b"HTTP/1.1 200 ")
        assert segments(connection) == number


@needs_tcp_info
@pytest.mark.parametrize(
    ("line", "status"), [("GET /missing", b"404"), ("GET /echo", b"405"), ("GET /health", b"200"), ("GET /", b"200")]
)
def test_refusals_and_health_leave_in_one_segment_too(connection: socket.socket, line: str, status: bytes):
    send(connection, line)
    assert read_until(connection, b"}").split()[1] == status
    assert segments(connection) == 1


@needs_tcp_info
def test_the_last_reply_of_a_connection_leaves_in_one_segment(connection: socket.socket):
    send(connection, "POST /echo", b"{}", more="connection: close\r\n")
    assert read_until(connection, b"{}").startswith(b"HTTP/1.1 200 ")
    assert segments(connection) == 1
    assert connection.recv(1) == b""


def test_replies_without_a_body_and_long_replies_arrive_whole(connection: socket.socket):
    send(connection, "GET /none")
    assert b"content-length: 0\r\n" in read_until(connection, b"\r\n\r\n")
    send(connection, "HEAD /none")
    assert b" 405 " in read_until(connection, b"\r\n\r\n")
    send(connection, "GET /long")
    head, _, body = read_until(connection, b"x").partition(b"\r\n\r\n")
    while len(body) < 3_000_000:
        body += connection.recv(1 << 20)
    assert b"content-length: 3000000\r\n" in head + b"\r\n"
    assert body == b"x" * 3_000_000


def test_pipelined_requests_are_answered_in_order(connection: socket.socket):
    for number in range(20):
        send(connection, "POST /echo", b"[%02d]" % number)
    found = read_until(connection, b"[19]")
    assert [int(part[:2]) for part in found.split(b"[")[1:]] == list(range(20))


def test_a_client_that_waits_for_100_continue_gets_it_at_once(connection: socket.socket):
    head = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
    connection.sendall(head + b"content-length: 2\r\n\r\n")
    assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(b"{}")
    assert read_until(connection, b"{}").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_head_of_a_stream_does_not_wait_for_its_first_event(new_loop: Callable[[], asyncio.AbstractEventLoop]):
    app = Talking()
    with listening(app, new_loop) as connection:
        send(connection, "GET /events")
        assert b"text/event-stream" in read_until(connection, b"\r\n\r\n")
        app.go_on.set()
        assert read_until(connection, b"0\r\n\r\n").count(b"data: ") == 2
