"""The client of our servers, against sockets that say exactly what a test wants them to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus import Failure
from ludus.errors import UserError
from ludus.http import client as wire
from ludus.http.client import Connections

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(script: Script) -> AsyncIterator[tuple[Connections, list[int]]]:
    """A server that runs a script for each connection, a client for it, and a list that grows with the connections."""
    made: list[int] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(1)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await script(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Connections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {"x-fixed": "1"})
    try:
        yield client, made
    finally:
        await client.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        await server.wait_closed()


async def asked(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of a request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


def saying(*replies: bytes) -> Script:
    """Answers each request of a connection with the next of some bytes, and then closes it."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            await asked(reader)
            writer.write(reply)
            await writer.drain()

    return script


def whole(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 200 OK\r\n" + lines + b"content-length: %d\r\n\r\n" % len(body) + body


async def test_a_request_is_sent_as_it_was_asked_for():
    got: list[tuple[bytes, bytes]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            got.append(await asked(reader))
            writer.write(whole(b"{}"))

    async with listening(script) as (client, made):
        await client.request("POST", "/päth?a=1", b"body", {"x-own": "grüße"})
        await client.request("GET", "/")
    head, body = got[0]
    host = client.url.removeprefix("http://")
    assert head.decode() == (
        f"POST /p%C3%A4th?a=1 HTTP/1.1\r\nhost: {host}\r\nx-fixed: 1\r\nx-own: grüße\r\ncontent-length: 4\r\n\r\n"
    )
    assert body == b"body"
    assert len(made) == 1, "the second request uses the connection of the first"


@settings(max_examples=30, deadline=None)
@given(data=st.data(), body=st.binary(max_size=200), chunked=st.booleans(), early=st.booleans())
def test_a_reply_is_the_same_however_it_arrives(data: st.DataObject, body: bytes, chunked: bool, early: bool):
    if chunked:
        cut = data.draw(st.integers(0, len(body)))
        parts = [part for part in (body[:cut], body[cut:]) if part]
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        sent = b"HTTP/1.1 207 X\r\nSet-Cookie: a\r\nset-cookie: b\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces
        sent += b"0\r\n\r\n"
    else:
        sent = whole(body, b"Set-Cookie: a", b"set-cookie: b").replace(b"200 OK", b"207 X")
    sent = (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" if early else b"") + sent
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=6)))

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await asked(reader)
            for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
                writer.write(sent[start:end])
                await writer.drain()
                await asyncio.sleep(0)

    async def ask() -> None:
        async with listening(script) as (client, made):
            for _ in range(2):
                reply = await client.request("POST", "/", b"{}")
                assert (reply.status, reply.body, reply.all("set-cookie")) == (207, body, ["a", "b"])
            assert len(made) == 1

    asyncio.run(ask())


async def test_a_reply_that_does_not_say_how_long_it_is_ends_with_its_connection():
    async with listening(saying(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as (client, made):
        for _ in range(2):
            assert (await client.request("GET", "/")).body == b"all of it"
        assert len(made) == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ],
)
async def test_anything_but_a_whole_reply_is_a_dropped_connection(sent: bytes):
    async with listening(saying(sent)) as (client, _):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"{}")
    assert caught.value.kind == "disconnected"


async def test_a_server_that_hangs_up_at_once_is_a_dropped_connection():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with listening(script) as (client, _), asyncio.timeout(10):
        connection = await client._connect()
        await asyncio.sleep(0.2)  # the loop sees that it is gone
        with pytest.raises(ConnectionError):
            await connection.exchange(b"GET / HTTP/1.1\r\n\r\n", b"")
        for _ in range(20):
            with pytest.raises(Failure) as caught:
                await client.request("POST", "/")
            assert caught.value.kind == "disconnected"


async def test_neither_a_second_reply_nor_what_follows_a_body_brings_headers():
    chunked = b"HTTP/1.1 200 OK\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-evil: 1\r\n\r\n"
    for sent in (chunked, whole(b"ok", b"x-a: 1") + whole(b"more", b"x-evil: 1")):
        async with listening(saying(sent)) as (client, _):
            reply = await client.request("POST", "/")
            assert (reply.body, reply.all("x-a"), reply.all("x-evil")) == (b"ok", ["1"], [])


async def test_a_connection_that_is_still_sending_is_not_used_again():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        refused = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"
        writer.write(refused if b"length: 8388608" in head else whole(b"ok"))
        await asyncio.sleep(5)  # and never reads the body

    async with listening(script) as (client, made):
        assert (await client.request("POST", "/", bytes(8 << 20))).status == 413
        async with asyncio.timeout(3):
            assert (await client.request("POST", "/")).body == b"ok"
        assert len(made) == 2


@pytest.mark.parametrize("extra", [whole(b"late"), b"HTTP/1.1 200 OK\r\nx: ", b"noise"])
async def test_what_nobody_asked_for_answers_nobody(extra: bytes):
    async with listening(saying(whole(b"first") + extra, whole(b"never"))) as (client, made):
        assert (await client.request("POST", "/")).body == b"first"
        assert (await client.request("POST", "/")).body == b"first", "another connection, and not what was left over"
        assert len(made) == 2


async def test_a_request_that_was_given_up_leaves_no_reply_behind():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await asked(reader)
            if body == b"slow":
                await asyncio.sleep(0.2)
            writer.write(whole(body))

    async with listening(script) as (client, made):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.request("POST", "/", b"slow")
        assert (await client.request("POST", "/", b"quick")).body == b"quick"
        await asyncio.sleep(0.3)
        assert (await client.request("POST", "/", b"again")).body == b"again"
        assert len(made) == 2


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used():
    async with listening(saying(whole(b"only"))) as (client, made):
        for number in range(3):
            assert (await client.request("POST", "/")).body == b"only"
            await asyncio.sleep(0.05)
            assert len(made) == number + 1


async def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch):
    async with listening(saying(*[whole(b"x")] * 9)) as (client, made):
        await client.request("POST", "/")
        await client.request("POST", "/")
        assert len(made) == 1
        monkeypatch.setattr(wire, "KEPT_SECONDS", 0.0)
        await client.request("POST", "/")
        assert len(made) == 2


async def test_megabytes_travel_both_ways():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(whole((await asked(reader))[1]))
            await writer.drain()

    body = bytes(range(256)) * 20_000
    async with listening(script) as (client, _):
        replies = await asyncio.gather(*(client.request("POST", "/", body + b"%d" % number) for number in range(4)))
    assert [reply.body for reply in replies] == [body + b"%d" % number for number in range(4)]


@pytest.mark.parametrize("value", ["a\r\nx-admin: 1", "a\nb", "a\rb", "a\0b"])
async def test_a_header_cannot_bring_another(value: str):
    async with listening(saying(whole(b"{}"))) as (client, made):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"", {"x-ludus-rollout": value})
        assert caught.value.kind == "bad_request"
        assert not made


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://host", "http://", "http://host:port", "http://[::1", "http://a..b:80"]
)
def test_what_is_no_url_is_told_at_once(url: str):
    with pytest.raises(UserError, match="Write it as http://HOST:PORT"):
        Connections(url, {})


@pytest.mark.parametrize("url", ["http://user:hunter22@host:80", "http://user:hunter22@:port"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str):
    with pytest.raises(UserError) as caught:
        Connections(url, {})
    assert "hunter22" not in str(caught.value)


async def test_a_header_that_is_refused_is_named_and_its_value_is_not():
    async with listening(saying(whole(b"{}"))) as (client, _):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"", {"authorization": "Bearer secret\nvalue"})
    assert "authorization" in caught.value.cause
    assert "secret" not in caught.value.cause


async def test_a_server_that_is_not_there_is_refused():
    with pytest.raises(Failure, match=r"cannot reach http://127\.0\.0\.1:9") as caught:
        await Connections("http://127.0.0.1:9", {}).request("GET", "/")
    assert caught.value.kind == "refused"
