"""How a server reads requests and sends replies: framing, order, limits, and one TCP segment for a small reply."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from talking_app import Talking
from waiting import CEILING, until

from ludus.http.app import App
from ludus.http.listening import Listening, bind

uvloop = pytest.importorskip("uvloop")
needs_tcp_info = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux counts the segments")

POST = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
JSON_HEAD = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"


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


def test_trailers_of_a_chunked_body_are_not_headers(connection: socket.socket):
    head = b"POST /headers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-late: 1\r\n\r\n")
    found = read_until(connection, b"}")
    assert b'"host":"localhost"' in found
    assert b"x-late" not in found


def test_a_header_of_a_reply_cannot_begin_another_header(connection: socket.socket):
    send(connection, "GET /split")
    found = read_until(connection, b"Internal Server Error")
    assert found.startswith(b"HTTP/1.1 500 ")
    assert b"x-other" not in found


def test_a_request_for_another_protocol_is_answered_in_http_and_ends_the_connection(connection: socket.socket):
    send(connection, "GET /health", more="connection: upgrade\r\nupgrade: h2c\r\n")
    found = b"".join(iter(lambda: connection.recv(1000), b""))
    assert found.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in found


@pytest.mark.parametrize(
    "sent", [b"HELLO\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"]
)
def test_what_is_not_http_is_answered_with_400_and_the_connection_is_closed(connection: socket.socket, sent: bytes):
    connection.sendall(sent)
    found = b"".join(iter(lambda: connection.recv(1000), b""))
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.endswith(b"Invalid HTTP request received.")


def test_the_rest_of_a_refused_body_is_dropped_and_the_connection_goes_on(connection: socket.socket):
    connection.sendall(b"POST /echo HTTP/1.1\r\nhost: elsewhere\r\ncontent-length: 400000\r\n\r\n")
    assert b" 421 " in read_until(connection, b"}")
    connection.sendall(b"x" * 400_000)
    send(connection, "POST /echo", b'{"a":1}')
    assert read_until(connection, b'{"a":1}').startswith(b"HTTP/1.1 200 ")


def test_a_body_arrives_whole_in_pieces_of_any_size(connection: socket.socket):
    body = bytes(range(32, 127)) * 4000
    head = POST % len(body)
    for start in range(0, len(head), 7):
        connection.sendall(head[start : start + 7])
    for start in range(0, len(body), 50_001):
        connection.sendall(body[start : start + 50_001])
    assert read_until(connection, body[-500:]).endswith(body)


@given(bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 500), max_size=8))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replies_do_not_depend_on_how_the_requests_were_cut(
    connection: socket.socket, bodies: list[bytes], cuts: list[int]
):
    sent = b"".join(POST % len(body) + body for body in bodies)
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    for start, end in pairwise(places):
        connection.sendall(sent[start:end])
    wanted = b"".join(b"HTTP/1.1 200 OK\r\n" + JSON_HEAD % len(body) + body for body in bodies)
    found = b""
    while len(found) < len(wanted):
        found += connection.recv(1 << 16)
    assert found == wanted


def test_a_client_that_leaves_ends_its_request_even_if_it_sent_another_one_already():
    app = Talking()
    with listening(app, uvloop.new_event_loop) as connection:
        send(connection, "GET /wait")
        assert app.begun.wait(CEILING)
        send(connection, "GET /health")
        connection.close()
        assert app.left.wait(CEILING)


def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch):
    with listening(Talking(), uvloop.new_event_loop) as connection:
        send(connection, "GET /health")
        assert read_until(connection, b"}").startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr("ludus.http.listening.KEPT_SECONDS", 0.1)
        assert connection.recv(1) == b""


class Wrapped(Talking):
    """Adds a header to every reply, and changes every body, as an ASGI application around another one may do."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-marked", b"1")]}
            await send(message)

        async def changed() -> Any:
            message = await receive()
            return {**message, "body": message.get("body", b"").upper()}

        await super().__call__(scope, changed, marked)


def test_an_application_around_another_one_sees_each_message():
    with listening(Wrapped(), uvloop.new_event_loop) as connection:
        send(connection, "POST /echo", b'"a"')
        assert b"x-marked: 1\r\n" in read_until(connection, b'"A"')
        send(connection, "GET /nothing")
        assert b"x-marked: 1\r\n" in read_until(connection, b"}")


def closed(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    found = b""
    with suppress(ConnectionResetError):  # a server that has not read all resets the connection
        while piece := connection.recv(1 << 16):
            found += piece
    return found


def test_a_bad_request_is_refused_after_the_replies_to_those_before_it(connection: socket.socket):
    post = POST % 2 + b"{}"
    connection.sendall(post + post + b"BAD\r\n\r\n" + post)
    replies = closed(connection)
    assert [part[:3] for part in replies.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]


@pytest.mark.parametrize("target", [b"*", b"http://a:b:c/", b"//a?b", b"http://", b"a/b", b"?x", b"/a?%00#"])
def test_a_target_that_is_no_url_costs_no_earlier_request_its_reply(connection: socket.socket, target: bytes):
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    connection.sendall(health * 3 + b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    replies = [part[:3] for part in closed(connection).split(b"HTTP/1.1 ")[1:]]
    assert replies[:3] == [b"200"] * 3
    assert len(replies) == 4
    assert replies[3] in (b"400", b"404")


def test_more_requests_at_once_than_any_client_sends_are_refused(connection: socket.socket):
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5000)
    assert closed(connection).count(b"HTTP/1.1 200 ") < 5000


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000,
        b"GET /" + b"y" * 200_000,
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"a:b\r\n" * 50_000,
        POST[: POST.index(b"content-length")] + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 200_000,
    ],
    ids=["header", "target", "headers", "trailer"],
)
def test_a_head_or_trailer_without_end_is_refused(
    connection: socket.socket, head: bytes, monkeypatch: pytest.MonkeyPatch
):
    for limit in ("HEAD_SECONDS", "REQUEST_SECONDS"):  # it is its size that is refused
        monkeypatch.setattr(f"ludus.http.listening.{limit}", 10 * CEILING)
    with suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(head)
    assert closed(connection)[:13] in (b"", b"HTTP/1.1 400 ")


def test_a_body_behind_an_upgrade_to_another_protocol_is_refused_and_not_left_out(connection: socket.socket):
    send(connection, "POST /echo", b'{"a":1}', more="connection: upgrade\r\nupgrade: h2c\r\n")
    assert closed(connection).startswith(b"HTTP/1.1 400 ")


def test_a_refused_body_that_was_not_asked_for_ends_the_connection(connection: socket.socket):
    head = b"POST /missing HTTP/1.1\r\nhost: evil\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n"
    connection.sendall(head + b"content-length: 7\r\n\r\n")
    assert b"connection: close" in closed(connection)


@pytest.mark.parametrize("name", ["host", "origin", "content-type"])
def test_a_header_of_the_guard_that_stands_twice_is_refused(connection: socket.socket, name: str):
    values = {"host": "evil", "origin": "http://evil", "content-type": "text/plain"}
    more = f"{name}: {values[name]}\r\n" * (2 if name == "origin" else 1)
    send(connection, "POST /echo", b"{}", more=more)
    assert read_until(connection, b"}").split()[1] == b"400"


def cut_off(connection: socket.socket) -> bool:
    try:
        send(connection, "GET /health")
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


def test_a_client_that_reads_nothing_of_a_long_reply_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus.http.listening.REQUEST_SECONDS", 0.2)
    with listening(Talking(), uvloop.new_event_loop) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(4):
            send(connection, "GET /long")
        connection.settimeout(CEILING)
        until(lambda: cut_off(connection))  # the server looks every second
