"""Many connections of a client over one socket: the same replies, limits and errors as with a socket for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from talking_app import Talking
from waiting import CEILING, until_async

from ludus.errors import Failure
from ludus.http import channels
from ludus.http.app import App
from ludus.http.carriers import Carriers
from ludus.http.channels import Carrier, HttpChannel
from ludus.http.client import Connections, Disconnected
from ludus.http.listening import Listening, bind

uvloop = pytest.importorskip("uvloop")
OURS = {"x-ludus-seed": "1"}
JSON = {"content-type": "application/json"}


class Front:
    """A TCP proxy before a server: it counts connections, keeps what clients sent first, and can cut all of them."""

    def __init__(self, port: int) -> None:
        self._port, self.firsts, self._writers = port, list[bytes](), list[asyncio.StreamWriter]()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, out = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, out]
        self.firsts.append(b"")
        back = asyncio.create_task(self._copy(onward, writer))
        while data := await reader.read(1 << 16):
            if not self.firsts[-1]:
                self.firsts[-1] = data
            out.write(data)
        out.close()
        await back

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def served(app: App, offered: bool = True) -> AsyncIterator[tuple[Connections, Front, Listening]]:
    """A client of an application, behind a proxy."""
    bound = bind("test", "127.0.0.1", 0)
    listening = Listening(app, bound, channels=offered)
    await listening.begin()
    front = Front(bound.getsockname()[1])
    proxy = await asyncio.start_server(front, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    client = Connections(f"http://127.0.0.1:{port}", JSON, channels=True)
    try:
        yield client, front, listening
    finally:
        await client.close()
        await listening.stop()
        proxy.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_on(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(work, CEILING))

    return run_on


Run = Callable[[Coroutine[Any, Any, None]], None]


async def echoes(client: Connections, count: int, size: int = 10) -> None:
    """Send many requests at once, each with a body of its own."""
    bodies = [b"%06d" % number + b"x" * size for number in range(count)]
    replies = await asyncio.gather(*(client.request("POST", "/echo", body, OURS) for body in bodies))
    assert [(reply.status, reply.body) for reply in replies] == [(200, body) for body in bodies]


async def switched(client: Connections) -> None:
    """Learn that the server has channels."""
    await echoes(client, 1)
    await echoes(client, 1)


def test_hundreds_of_requests_at_once_share_a_few_sockets(run: Run):
    async def work() -> None:
        async with served(Talking()) as (client, front, _):
            await switched(client)
            await echoes(client, 300)
            assert len(front.firsts) == 1 + -(-300 // channels.MOST_CHANNELS)
            await echoes(client, 300)
            assert len(front.firsts) == 1 + -(-300 // channels.MOST_CHANNELS), "channels are used again"

    run(work())


def test_a_server_that_announces_no_channels_is_never_asked_for_them(run: Run):
    async def work() -> None:
        async with served(Talking(), offered=False) as (client, front, _):
            await switched(client)
            await echoes(client, 20)
            assert not any(b"upgrade" in first.lower() for first in front.firsts)

    run(work())


def test_a_client_that_is_not_ours_is_told_nothing(run: Run):
    async def work() -> None:
        async with served(Talking()) as (client, front, _):
            for _ in range(2):
                reply = await client.request("POST", "/echo", b"{}")
                assert all(not name.startswith(b"x-ludus") for name, _ in reply.headers)
            assert len(front.firsts) == 1

    run(work())


def test_a_server_that_announced_channels_and_refuses_them_gets_ordinary_connections(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ludus.http.server_connection._asks_for_channels", lambda headers: False)

    async def work() -> None:
        async with served(Talking()) as (client, front, _):
            await switched(client)
            await echoes(client, 20)
            assert sum(b"upgrade" in first for first in front.firsts) == 1

    run(work())


def test_a_web_page_does_not_get_channels(run: Run):
    async def work() -> None:
        async with served(Talking()) as (_, front, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", front._port)
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n")
            writer.write(b"connection: upgrade\r\nupgrade: ludus-channels\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()

    run(work())


def test_large_bodies_and_large_replies_arrive_whole_beside_small_ones(run: Run):
    async def work() -> None:
        async with served(Talking()) as (client, _, _):
            await switched(client)
            await asyncio.gather(echoes(client, 4, 3_000_000), echoes(client, 40), echoes(client, 20, 60_000))

    run(work())


def test_errors_have_the_statuses_that_they_have_on_a_socket(run: Run):
    async def work() -> None:
        async with served(Talking()) as (client, _, _):
            await switched(client)
            for _ in range(2):
                assert (await client.request("POST", "/refuse", b"{}", OURS)).status == 418
                assert (await client.request("POST", "/nothing", b"{}", OURS)).status == 404
                assert (await client.request("POST", "/echo", b"{}", {"origin": "http://evil.example"})).status == 403

    run(work())


def test_a_cancelled_request_ends_its_work_on_the_server_and_no_other(run: Run):
    async def work() -> None:
        app = Talking()
        async with served(app) as (client, _, _):
            await switched(client)
            waiting = asyncio.create_task(client.request("POST", "/wait", b"{}", OURS))
            await until_async(app.begun.is_set)
            other = asyncio.create_task(echoes(client, 10))
            waiting.cancel()
            await until_async(app.left.is_set)
            await other
            assert not app.go_on.is_set()

    run(work())


def test_a_lost_socket_fails_the_requests_on_it_and_the_next_request_gets_another(run: Run):
    async def work() -> None:
        app = Talking()
        async with served(app) as (client, front, _):
            await switched(client)
            waiting = [asyncio.create_task(client.request("POST", "/wait", b"{}", OURS)) for _ in range(3)]
            await until_async(app.begun.is_set)
            front.cut()
            for failed in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(failed, Disconnected)
            await echoes(client, 5)

    run(work())


def test_a_stopping_server_answers_what_it_has_begun_and_takes_no_new_request(run: Run):
    async def work() -> None:
        app = Talking()
        async with served(app) as (_, front, listening):
            client = Connections(f"http://127.0.0.1:{front._port}", JSON, channels=True)
            await switched(client)
            waiting = asyncio.create_task(client.request("POST", "/wait", b"{}", OURS))
            await until_async(app.begun.is_set)
            stopping = asyncio.create_task(listening.stop())
            await asyncio.sleep(0)
            refused: list[Failure] = []
            while not refused:
                try:
                    await client.request("POST", "/echo", b"{}", OURS)
                except Failure as error:
                    refused.append(error)
            app.go_on.set()
            assert (await waiting).body == b"[1]"
            await stopping
            with pytest.raises(Failure) as raised:
                await client.request("POST", "/echo", b"{}", OURS)
            assert raised.value.kind == "refused"
            await client.close()

    run(work())


class Recorded:
    """The protocol of a channel that keeps what arrives."""

    def __init__(self) -> None:
        self.got, self.lost = b"", False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        self.got += data

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


class Wire(asyncio.Transport):
    """A socket that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closing, self.reading = b"", False, True

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


writes = st.lists(st.tuples(st.integers(0, 4), st.binary(min_size=1, max_size=30)), max_size=20)


@given(sent=writes, cuts=st.lists(st.integers(0, 400), max_size=10))
def test_each_channel_gets_its_bytes_however_the_stream_was_cut(sent: list[tuple[int, bytes]], cuts: list[int]):
    async def work() -> None:
        wire, accepted = Wire(), list[Recorded]()

        def accept() -> Recorded:
            accepted.append(Recorded())
            return accepted[-1]

        here, there = Carrier(), Carrier(accept)
        here.connection_made(wire)
        there.connection_made(Wire())
        opened = [Recorded() for _ in range(5)]
        for each in opened:
            here.open(each)
        numbers = list(dict.fromkeys(number for number, _ in sent))
        for number, data in sent:
            opened[number].transport.write(data)
        for number in numbers:
            opened[number].transport.close()
        await asyncio.sleep(0)
        stream = wire.sent
        places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
        for start, end in pairwise(places):
            there.data_received(stream[start:end])
        await asyncio.sleep(0)
        wanted = {number: b"".join(data for to, data in sent if to == number) for number in numbers}
        assert sorted(each.got for each in accepted) == sorted(wanted.values())
        assert all(each.lost for each in accepted)
        assert len(there) == 0

    asyncio.run(work())


def test_a_channel_that_reads_slowly_stops_the_socket_until_it_goes_on_or_closes():
    async def work() -> None:
        wire = Wire()
        carrier, first, second = Carrier(), Recorded(), Recorded()
        carrier.connection_made(wire)
        carrier.open(first)
        carrier.open(second)
        first.transport.pause_reading()
        second.transport.pause_reading()
        first.transport.resume_reading()
        assert not wire.reading
        assert isinstance(second.transport, HttpChannel)
        second.transport.close()
        assert wire.reading

    asyncio.run(work())


def test_a_client_cannot_open_more_channels_than_the_limit():
    async def work() -> None:
        wire, made = Wire(), list[Recorded]()

        def accept() -> Recorded:
            made.append(Recorded())
            return made[-1]

        carrier = Carrier(accept)
        carrier.connection_made(wire)
        for number in range(1, channels.MOST_CHANNELS + 3):
            carrier.data_received(number.to_bytes(4, "big") + (1).to_bytes(4, "big") + b"x")
        await asyncio.sleep(0)
        assert len(made) == len(carrier) == channels.MOST_CHANNELS
        closed = [
            number.to_bytes(4, "big") + bytes(4) for number in (channels.MOST_CHANNELS + 1, channels.MOST_CHANNELS + 2)
        ]
        assert wire.sent == b"".join(closed)

    asyncio.run(work())


def test_an_idle_socket_without_channels_is_closed_by_the_server(monkeypatch: pytest.MonkeyPatch):
    async def work() -> None:
        async with served(Talking()) as (_, front, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", front._port)
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
            writer.write(b"connection: upgrade\r\nupgrade: ludus-channels\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")) == channels.SWITCHED
            monkeypatch.setattr("ludus.http.listening.KEPT_SECONDS", 0.1)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(work(), CEILING))


def test_a_closed_channel_is_not_taken_again_in_the_same_turn_of_the_event_loop(run: Run):
    async def work() -> None:
        async with served(Talking()) as (client, _, _):
            await switched(client)
            client._idle[-1]._transport.close()  # its connection learns it in the next turn
            with pytest.raises(Disconnected):
                await client.request("POST", "/echo", b"1", OURS)
            await echoes(client, 1)

    run(work())


async def test_requests_that_wait_for_a_refused_carrier_ask_for_no_other():
    class Refusing:
        def write(self, data: bytes) -> None:
            pass

        def abort(self) -> None:
            pass

    asked = 0

    async def connect(make: Callable[[], Any]) -> Any:
        nonlocal asked
        asked += 1
        handshake = make()
        handshake.connection_made(Refusing())
        asyncio.get_running_loop().call_later(0.01, handshake.data_received, b"HTTP/1.1 400 Bad Request")
        return handshake

    carriers = Carriers(connect, b"")
    found = await asyncio.gather(*(carriers.open(None) for _ in range(50)))  # type: ignore[arg-type]
    assert (found, asked) == ([False] * 50, 1)
