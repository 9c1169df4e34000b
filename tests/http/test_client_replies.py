"""The HTTP client against replies that are compressed, too large, cut short or slow, and over TLS and proxies."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from raw_server import Script, read_request, reply_with, sending, serving
from waiting import CEILING

from ludus import Failure, UserError
from ludus.http import connecting
from ludus.http.client import Connections, Disconnected
from ludus.http.connecting import HttpProxy, proxy_of
from ludus.http.retries import Retries
from ludus.models.aiohttp_client import AiohttpClient
from ludus.models.transport import HttpOptions, Transport


@asynccontextmanager
async def client_of(script: Script, **options: object) -> AsyncIterator[tuple[Connections, list[int]]]:
    async with serving(script) as (port, made):
        client = Connections(f"http://127.0.0.1:{port}", {}, **options)  # type: ignore[arg-type]
        try:
            yield client, made
        finally:
            await client.close()


def deflated(body: bytes) -> bytes:
    raw = zlib.compressobj(wbits=-15)
    return raw.compress(body) + raw.flush()


PACKED = {
    "gzip": (b"gzip", gzip.compress),
    "gzip members": (b"gzip", lambda body: gzip.compress(body[:7]) + gzip.compress(body[7:])),
    "zlib": (b"deflate", zlib.compress),
    "raw deflate": (b"deflate", deflated),
}


@pytest.mark.parametrize("name", PACKED)
@given(body=st.binary(min_size=1, max_size=300), data=st.data())
def test_a_compressed_reply_is_read_whole_in_any_pieces(name: str, body: bytes, data: st.DataObject):
    encoding, pack = PACKED[name]
    sent = reply_with(pack(body), b"Content-Encoding: " + encoding)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=5)))

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            writer.write(sent[start:end])
            await writer.drain()

    async def ask() -> None:
        async with client_of(script) as (client, _):
            assert (await client.request("POST", "/", b"{}")).body == body

    asyncio.run(ask())


@pytest.mark.parametrize("packed", [False, True])
async def test_a_reply_may_have_the_limits_size_and_no_byte_more(packed: bool):
    for size, fits in ((100_000, True), (100_001, False)):
        body = bytes(size)
        sent = reply_with(gzip.compress(body), b"content-encoding: gzip") if packed else reply_with(body)
        async with client_of(sending(sent), reply_bytes=100_000) as (client, _):
            if fits:
                assert (await client.request("POST", "/")).body == body
                continue
            with pytest.raises(Failure, match="the reply is larger than 100,000 bytes") as caught:
                await client.request("POST", "/")
            assert caught.value.kind == "too_large"


async def test_headers_without_end_are_a_failure():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nx-long: ")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with client_of(script) as (client, _), asyncio.timeout(CEILING):
        with pytest.raises(Failure, match="the headers of the reply are larger than") as caught:
            await client.request("POST", "/")
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize(
    ("encoding", "body", "cause"),
    [
        (b"br", b"x", "has the Content-Encoding 'br'"),
        (b"gzip", b"\x1f\x8bnothing", "is not what its Content-Encoding says"),
    ],
)
async def test_a_body_that_cannot_be_decompressed_is_a_bad_response(encoding: bytes, body: bytes, cause: str):
    async with client_of(sending(reply_with(body, b"content-encoding: " + encoding))) as (client, _):
        with pytest.raises(Failure, match=cause) as caught:
            await client.request("POST", "/")
    assert caught.value.kind == "bad_response"


async def test_a_file_of_very_many_gzip_members_is_refused():
    sent = reply_with(gzip.compress(b"") * 5000, b"content-encoding: gzip")
    async with client_of(sending(sent)) as (client, _):
        with pytest.raises(Failure, match="holds more than 1000 gzip files") as caught:
            await client.request("POST", "/")
    assert caught.value.kind == "bad_response"


async def test_trailers_without_end_are_a_failure():
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-long: ")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with client_of(script, reply_bytes=100_000) as (client, _), asyncio.timeout(CEILING):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/")
    assert caught.value.kind == "too_large"


async def test_the_headers_of_an_interim_reply_do_not_count():
    sent = b"HTTP/1.1 103 Early Hints\r\ncontent-encoding: gzip\r\n\r\n" + reply_with(b"plain")
    async with client_of(sending(sent)) as (client, _):
        assert (await client.request("POST", "/")).body == b"plain"


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"HTTP/1.1 000 X\r\ncontent-length: 0\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "changed the protocol"),
    ],
)
async def test_a_reply_that_is_not_http_is_said_to_be_so(sent: bytes, cause: str):
    async with client_of(sending(sent)) as (client, _), asyncio.timeout(CEILING):
        with pytest.raises(Disconnected, match=cause):
            await client.request("POST", "/")


async def test_a_body_in_many_chunks_is_read_whole():
    sent = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"2\r\nok\r\n" * 5000 + b"0\r\n\r\n"
    async with client_of(sending(sent)) as (client, _):
        assert (await client.request("POST", "/")).body == b"ok" * 5000


async def test_compressed_data_that_is_incomplete_is_no_answer():  # aiohttp takes it for one
    half = reply_with(gzip.compress(bytes(range(256)))[:-30], b"content-encoding: gzip")
    async with client_of(sending(half)) as (client, _):
        with pytest.raises(Disconnected, match="the compressed reply is incomplete"):
            await client.request("POST", "/")


WHOLE = [
    reply_with(b'{"a": 1}', b"x-a: 1"),
    reply_with(gzip.compress(b'{"a": 1}'), b"content-encoding: gzip"),
    b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n',
]


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("sent", WHOLE, ids=["length", "gzip", "chunked"])
async def test_a_reply_that_ends_at_any_byte_is_a_failure_and_never_an_answer(sent: bytes, reset: bool):
    cut = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(sent[:cut])
        await writer.drain()
        if reset:
            writer.transport.abort()

    async with client_of(script) as (client, _), asyncio.timeout(CEILING):
        for cut in range(len(sent)):
            with pytest.raises(Disconnected) as caught:
                await client.request("POST", "/", b"{}")
            assert caught.value.begun == (cut > 0) or reset  # a reset may overtake the bytes before it
        cut = len(sent)
        if not reset:
            assert (await client.request("POST", "/", b"{}")).json() == {"a": 1}


async def test_at_most_that_many_connections_are_open():
    open_now, most = 0, 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        while True:
            await read_request(reader)
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(0)
            open_now -= 1
            writer.write(reply_with(b"{}"))

    async with client_of(script, limit=3) as (client, made):
        await asyncio.gather(*(client.request("POST", "/") for _ in range(40)))
    assert most <= 3
    assert len(made) <= 3


# TLS and proxies


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[trustme.CA]:
    """A certificate authority that the client trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    connecting._tls_context.cache_clear()
    yield authority
    connecting._tls_context.cache_clear()


def tls_for(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_tls_verifies_the_certificate_and_its_name(authority: trustme.CA):
    names: list[str | None] = []
    for certified, issuer, fits in (
        ("localhost", authority, True),
        ("elsewhere.example", authority, False),
        ("localhost", trustme.CA(), False),
    ):
        context = tls_for(issuer, certified)
        context.sni_callback = lambda _, name, __: names.append(name)
        async with serving(sending(*[reply_with(b"{}")] * 2), context) as (port, made):
            client = Connections(f"https://localhost:{port}", {})
            if fits:
                for _ in range(2):
                    assert (await client.request("POST", "/", bytes(100_000))).body == b"{}"
                assert len(made) == 1
            else:
                with pytest.raises(Failure, match="its certificate is not trusted") as caught:
                    await client.request("POST", "/")
                assert caught.value.kind == "refused"
            await client.close()
    assert names == ["localhost"] * 3


def a_proxy(asked: list[bytes], status: bytes = b"200 Connection established") -> Script:
    """A proxy: it notes the heads of requests, answers plain requests itself, and tunnels CONNECT."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        if not head.startswith(b"CONNECT"):
            writer.write(reply_with(b"from the proxy"))
            await reader.read()
            return
        writer.write(b"HTTP/1.1 " + status + b"\r\nx-more: 1\r\n\r\n")
        if not status.startswith(b"200"):
            return
        port = int(head.split()[1].rpartition(b":")[2])
        source, sink = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(pump(reader, sink), pump(source, writer), return_exceptions=True)
        finally:
            sink.transport.abort()

    return script


async def test_https_goes_through_a_tunnel_of_the_proxy(authority: trustme.CA):
    asked: list[bytes] = []
    async with (
        serving(sending(*[reply_with(b"secret")] * 2), tls_for(authority, "localhost")) as (port, _),
        serving(a_proxy(asked)) as (proxy_port, _),
    ):
        proxy = HttpProxy(f"http://me:p%40ss@127.0.0.1:{proxy_port}")
        client = Connections(f"https://localhost:{port}", {"authorization": "Bearer key"}, proxy=proxy)
        for _ in range(2):
            assert (await client.request("POST", "/v1", b"{}")).body == b"secret"
        await client.close()
    (head,) = asked
    assert head.startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head  # me:p@ss
    assert b"Bearer" not in head, "the proxy does not see the key"


async def test_a_proxy_that_refuses_is_named_without_its_password():
    async with serving(a_proxy([], b"407 Proxy Authentication Required")) as (port, _):
        client = Connections("https://api.example", {}, proxy=HttpProxy(f"http://me:hunter22@127.0.0.1:{port}"))
        with pytest.raises(Failure, match=f"the proxy 127.0.0.1:{port} refused: status 407") as caught:
            await client.request("POST", "/")
    assert caught.value.kind == "refused"
    assert "hunter22" not in caught.value.cause


@pytest.mark.parametrize("status", [b"Basic dXNlcjpwQHNz", b"", b"\x1b[31m9"])
async def test_what_a_proxy_says_is_not_repeated(status: bytes):
    async with serving(a_proxy([], status)) as (port, _):
        client = Connections("https://api.example", {}, proxy=HttpProxy(f"http://127.0.0.1:{port}"))
        with pytest.raises(Failure, match="an answer that is not HTTP") as caught:
            await client.request("POST", "/")
    assert "\x1b" not in caught.value.cause


async def test_plain_http_is_sent_to_the_proxy_with_the_whole_url():
    asked: list[bytes] = []
    async with serving(a_proxy(asked)) as (port, _):
        client = Connections("http://models.example:8000/v1", {}, proxy=HttpProxy(f"127.0.0.1:{port}"))
        assert (await client.request("POST", "/responses", b"")).body == b"from the proxy"
        await client.close()
    assert asked[0].startswith(
        b"POST http://models.example:8000/v1/responses HTTP/1.1\r\nhost: models.example:8000\r\n"
    )


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        ("https://api.example/v1", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://q:2"}, "p:1"),
        ("http://api.example/v1", {"HTTPS_PROXY": "http://p:1", "http_proxy": "q:2"}, "q:2"),
        ("https://api.example/v1", {"ALL_PROXY": "http://p:3"}, "p:3"),
        ("https://api.example/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other,.example"}, None),
        ("https://127.0.0.1:8000/v1", {"HTTPS_PROXY": "http://p:1"}, None),
        ("http://localhost:8000/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://[::1]:8000/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://api.example/v1", {}, None),
    ],
)
def test_the_proxy_comes_from_the_environment(url: str, variables: dict[str, str], proxy: str | None, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_of(urlsplit(url))
    assert (found.name if found else None) == proxy


@pytest.fixture
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("http", ["lean", "aiohttp"])
async def test_model_calls_go_through_the_proxy_of_the_environment_with_either_client(
    http: Literal["lean", "aiohttp"], without_proxies: None, monkeypatch: pytest.MonkeyPatch
):
    asked: list[bytes] = []
    async with serving(a_proxy(asked)) as (port, _):
        monkeypatch.setenv("ALL_PROXY", f"http://me:p%40ss@127.0.0.1:{port}")
        transport = Transport("m", ["http://models.example/v1"], {}, Retries(), HttpOptions(client=http))
        assert (await transport.post("/responses", b"{}")).body == b"from the proxy"
        await transport.stop()
    assert asked[0].startswith(b"POST http://models.example/v1/responses HTTP/1.1\r\n")
    assert b"proxy-authorization: basic bwu6cebzcw==" in asked[0].lower()  # me:p@ss


def test_a_socks_proxy_is_a_user_error_before_the_first_call(without_proxies: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:hunter22@host:1080")
    with pytest.raises(UserError, match="socks5 proxies are not supported") as caught:
        Transport("m", ["https://api.example/v1"], {}, Retries())
    assert "hunter22" not in str(caught.value)


def test_an_invalid_proxy_is_a_user_error_without_its_password():
    with pytest.raises(UserError, match="is not the URL of a proxy") as caught:
        HttpProxy("http://me:hunter22@host:port")
    assert "hunter22" not in str(caught.value)


# The lean client and aiohttp agree.

EXCHANGES = {
    "plain": reply_with(b'{"a": 1}', b"Content-Type: application/json", b"Retry-After: 3"),
    "gzip": WHOLE[1],
    "chunked": WHOLE[2],
    "no length": b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + reply_with(b"{}"),
    "error": b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nwait",
    "half": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    "nothing": b"",
    "too large": reply_with(bytes(60_000)),
}


@pytest.mark.parametrize("name", EXCHANGES)
async def test_the_lean_client_and_aiohttp_read_the_same(name: str):
    found = []
    async with serving(sending(EXCHANGES[name])) as (port, _):
        url = f"http://127.0.0.1:{port}"
        for client in (
            Connections(url, {}, reply_bytes=50_000),
            AiohttpClient(url, {}, name=url, reply_bytes=50_000),
        ):
            try:
                reply = await client.request("POST", "/", b"{}")
                found.append((reply.status, reply.body, reply.header("retry-after"), reply.header("location")))
            except Failure as error:
                found.append((error.kind, getattr(error, "begun", None)))
            await client.close()
    assert found[0] == found[1]


async def test_the_lean_client_and_aiohttp_report_an_unreachable_server_alike():
    kinds = []
    for client in (
        Connections("http://127.0.0.1:9", {}),
        AiohttpClient("http://127.0.0.1:9", {}, name="x", reply_bytes=9),
    ):
        with pytest.raises(Failure) as caught:
            await client.request("POST", "/", b"")
        kinds.append(caught.value.kind)
        await client.close()
    assert kinds == ["refused", "refused"]
