"""Our HTTP client against servers that send exactly the bytes that a test gives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_server import Script, read_request, reply_with, sending, serving
from waiting import CEILING, until_async

from ludus import Failure
from ludus.errors import UserError
from ludus.http import client as client_module
from ludus.http.client import Connections
from ludus.http.connecting import Route
from ludus.http.connection import HttpConnection


@asynccontextmanager
async def listening(script: Script) -> AsyncIterator[tuple[Connections, list[int]]]:
    """Run a server that runs the script on each connection. Gives a client, and a list with an entry per connection."""
    async with serving(script) as (port, made):
        client = Connections(f"http://127.0.0.1:{port}", {"x-fixed": "1"})
        try:
            yield client, made
        finally:
            await client.close()


async def turns(count: int = 20) -> None:
    """Let the loop turn a few times: what one end of a connection did then has reached the other."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_request_is_sent_with_its_method_path_headers_and_body():
    got: list[tuple[bytes, bytes]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            got.append(await read_request(reader))
            writer.write(reply_with(b"{}"))

    async with listening(script) as (client, made):
        await client.request("POST", "/päth?a=1", b"body", {"x-own": "grüße"})
        await client.request("GET", "/")
    head, body = got[0]
    host = client.url.removeprefix("http://")
    assert head.decode() == (
        f"POST /p%C3%A4th?a=1 HTTP/1.1\r\nhost: {host}\r\nx-fixed: 1\r\nx-own: grüße\r\ncontent-length: 4\r\n\r\n"
    )
    assert body == b"body"
    assert len(made) == 1, "the second request reuses the connection of the first"


async def test_a_server_on_a_unix_socket_is_asked_like_any_other(tmp_path: Path):
    heads: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await read_request(reader))[0])
        writer.write(reply_with(b"{}"))
        await writer.drain()
        writer.close()

    path = str(tmp_path / "server.sock")
    server = await asyncio.start_unix_server(script, path)
    named = Connections("http://worker", {}, unix=path)
    forwarding = Connections("http://worker", {}, unix=path, names_host=False)
    assert (await named.request("GET", "/one")).status == 200
    assert (await forwarding.request("GET", "/two", headers={"host": "localhost:1"})).status == 200
    hosts = [[line for line in head.split(b"\r\n") if line.startswith(b"host")] for head in heads]
    assert hosts == [[b"host: worker"], [b"host: localhost:1"]]
    server.close()
    (tmp_path / "server.sock").unlink()
    with pytest.raises(Failure, match="cannot reach http://worker: No such file") as raised:
        await named.request("GET", "/")
    assert raised.value.kind == "refused"


@settings(max_examples=30, deadline=None)
@given(data=st.data(), body=st.binary(max_size=200), chunked=st.booleans(), early=st.booleans())
def test_a_reply_is_read_whole_in_any_chunks_and_framing(data: st.DataObject, body: bytes, chunked: bool, early: bool):
    if chunked:
        cut = data.draw(st.integers(0, len(body)))
        parts = [part for part in (body[:cut], body[cut:]) if part]
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        sent = b"HTTP/1.1 207 X\r\nSet-Cookie: a\r\nset-cookie: b\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces
        sent += b"0\r\n\r\n"
    else:
        sent = reply_with(body, b"Set-Cookie: a", b"set-cookie: b").replace(b"200 OK", b"207 X")
    sent = (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" if early else b"") + sent
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=6)))

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await read_request(reader)
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


async def test_a_reply_without_a_length_ends_when_the_connection_closes():
    async with listening(sending(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as (client, made):
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
async def test_an_incomplete_or_malformed_reply_is_a_failure_of_kind_disconnected(sent: bytes):
    async with listening(sending(sent)) as (client, _):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"{}")
    assert caught.value.kind == "disconnected"


async def test_a_connection_that_the_server_aborts_is_a_failure_of_kind_disconnected():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with listening(script) as (client, _), asyncio.timeout(CEILING):
        connection = await client._connect()
        await until_async(connection._transport.is_closing)  # the loop sees that it is gone
        with pytest.raises(ConnectionError):
            await connection.exchange(b"GET / HTTP/1.1\r\n\r\n", b"")
        for _ in range(20):
            with pytest.raises(Failure) as caught:
                await client.request("POST", "/")
            assert caught.value.kind == "disconnected"


async def test_trailers_and_a_second_reply_add_no_headers():
    chunked = b"HTTP/1.1 200 OK\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-evil: 1\r\n\r\n"
    for sent in (chunked, reply_with(b"ok", b"x-a: 1") + reply_with(b"more", b"x-evil: 1")):
        async with listening(sending(sent)) as (client, _):
            reply = await client.request("POST", "/")
            assert (reply.body, reply.all("x-a"), reply.all("x-evil")) == (b"ok", ["1"], [])


async def test_a_connection_that_is_still_sending_is_not_reused():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        refused = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"
        writer.write(refused if b"length: 8388608" in head else reply_with(b"ok"))
        await asyncio.sleep(3600)  # and never reads the body

    async with listening(script) as (client, made):
        assert (await client.request("POST", "/", bytes(8 << 20))).status == 413
        async with asyncio.timeout(CEILING):
            assert (await client.request("POST", "/")).body == b"ok"
        assert len(made) == 2


@pytest.mark.parametrize("extra", [reply_with(b"late"), b"HTTP/1.1 200 OK\r\nx: ", b"\r\n"])
async def test_bytes_after_a_reply_do_not_answer_the_next_request(extra: bytes):
    async with listening(sending(reply_with(b"first") + extra, reply_with(b"never"))) as (client, made):
        assert (await client.request("POST", "/")).body == b"first"
        assert (await client.request("POST", "/")).body in (b"first", b"never")
        assert len(made) == 2 or extra == b"\r\n"


async def test_a_reply_that_is_followed_by_other_bytes_is_refused_since_its_length_may_be_wrong():
    async with listening(sending(reply_with(b"[1, 2") + b", 3]")) as (client, _):
        with pytest.raises(Failure, match="is not HTTP") as caught:
            await client.request("POST", "/")
    assert caught.value.kind == "disconnected"


async def test_the_reply_to_a_cancelled_request_does_not_answer_a_later_one():
    arrived, go_on, replied = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await read_request(reader)
            if body == b"slow":
                arrived.set()
                await go_on.wait()
            writer.write(reply_with(body))
            if body == b"slow":
                replied.set()

    async with listening(script) as (client, made):
        given_up = asyncio.create_task(client.request("POST", "/", b"slow"))
        await arrived.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert (await client.request("POST", "/", b"quick")).body == b"quick"
        go_on.set()
        await replied.wait()
        await turns()
        assert (await client.request("POST", "/", b"again")).body == b"again"
        assert len(made) == 2


async def test_a_connection_that_the_server_closed_while_idle_is_not_reused():
    async with listening(sending(reply_with(b"only"))) as (client, made):
        for number in range(3):
            assert (await client.request("POST", "/")).body == b"only"
            await turns()
            assert len(made) == number + 1


async def test_a_connection_that_was_idle_too_long_is_not_reused(monkeypatch: pytest.MonkeyPatch):
    async with listening(sending(*[reply_with(b"x")] * 9)) as (client, made):
        await client.request("POST", "/")
        await client.request("POST", "/")
        assert len(made) == 1
        monkeypatch.setattr(client_module, "KEPT_SECONDS", 0.0)
        await client.request("POST", "/")
        assert len(made) == 2


async def test_bodies_of_megabytes_are_sent_and_received_whole():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(reply_with((await read_request(reader))[1]))
            await writer.drain()

    body = bytes(range(256)) * 20_000
    async with listening(script) as (client, _):
        replies = await asyncio.gather(*(client.request("POST", "/", body + b"%d" % number) for number in range(4)))
    assert [reply.body for reply in replies] == [body + b"%d" % number for number in range(4)]


@pytest.mark.parametrize("value", ["a\r\nx-admin: 1", "a\nb", "a\rb", "a\0b"])
async def test_a_header_value_cannot_inject_another_header(value: str):
    async with listening(sending(reply_with(b"{}"))) as (client, made):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"", {"x-ludus-rollout": value})
        assert caught.value.kind == "bad_request"
        assert not made


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://host", "http://", "http://host:port", "http://[::1", "http://a..b:80"]
)
def test_an_invalid_url_is_a_user_error(url: str):
    with pytest.raises(UserError, match="Write it as http://HOST:PORT"):
        Connections(url, {})


@pytest.mark.parametrize("url", ["http://user:hunter22@host:80", "http://user:hunter22@:port"])
def test_a_password_in_a_url_is_a_user_error_that_does_not_show_it(url: str):
    with pytest.raises(UserError) as caught:
        Connections(url, {})
    assert "hunter22" not in str(caught.value)


async def test_the_failure_for_a_bad_header_shows_its_name_and_not_its_value():
    async with listening(sending(reply_with(b"{}"))) as (client, _):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"", {"authorization": "Bearer secret\nvalue"})
    assert "authorization" in caught.value.cause
    assert "secret" not in caught.value.cause


async def test_an_unreachable_server_is_a_failure_of_kind_refused():
    with pytest.raises(Failure, match=r"cannot reach http://127\.0\.0\.1:9") as caught:
        await Connections("http://127.0.0.1:9", {}).request("GET", "/")
    assert caught.value.kind == "refused"


@pytest.mark.parametrize("others", [True, False])
async def test_a_slow_connection_is_tried_again_only_while_others_are_made(
    others: bool, monkeypatch: pytest.MonkeyPatch
):
    """A process that opens thousands of connections at once may be too late for some, and the server is not dead."""
    connect, made, tries = Route.connect, asyncio.Event(), []

    async def first_is_late(route: Route, make: Callable[[], HttpConnection]) -> HttpConnection:
        tries.append(1)
        if len(tries) > 1:
            return await connect(route, make)
        if others:
            await made.wait()
        raise TimeoutError

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(reply_with(b"{}"))

    monkeypatch.setattr(Route, "connect", first_is_late)
    async with listening(script) as (client, _):
        slow = asyncio.create_task(client.request("GET", "/"))
        await turns()
        if others:
            await client.request("GET", "/")
            made.set()
            assert (await slow).status == 200
        else:
            with pytest.raises(Failure, match="timed out after 30 s"):
                await slow
