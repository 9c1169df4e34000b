"""The browser, with local servers as its web: which URLs it opens, which it refuses, and what it reads."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.google_search.addresses import EVERYWHERE, Forbidden, Reach, is_public
from ludus.environments.google_search.browser import Browser, open_browser
from ludus.environments.google_search.extraction import text_of
from ludus.environments.google_search.provider import NoPage
from ludus.environments.google_search.settings import SearchConfig

PROSE = "The harbour was built in 1841 by people who knew the tides well. " * 5
HTML = f"<html><head><title>Harbour</title></head><body><nav>Menu</nav><article><p>{PROSE}</p></article></body></html>"
BOMB = gzip.compress(b"a" * 10_000_000)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *hosts: str) -> AsyncIterator[str]:
    """A server that passes every request to `handler`; yields its URL on the first host."""
    server = web.ServerRunner(web.Server(handler))  # type: ignore[arg-type]
    await server.setup()
    port = 0
    for host in hosts or ("127.0.0.1",):
        await web.TCPSite(server, host, port).start()
        port = server.addresses[0][1]
    try:
        yield f"http://{(hosts or ('127.0.0.1',))[0]}:{port}"
    finally:
        await server.cleanup()


async def reason(browser: Browser, url: str) -> str:
    with pytest.raises(NoPage) as caught:
        await browser.page(url)
    return str(caught.value)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.8 192.0.0.192 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
    239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1:: fc00::1 fd00:ec2::254 fe80::1 fe80::1%1
    fec0::1 ff02::1 2606:4700::1111%1 4000::1
    """.split(),
)
def test_all_other_addresses_are_refused(address: str) -> None:
    assert not is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_embedded_in_ipv6_is_refused(address: IPv4Address) -> None:
    number = int(address)
    for prefix in (0, 0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96, 0x64FF9B0001 << 80):
        assert not is_public(IPv6Address(prefix + number))
    assert not is_public(IPv6Address((0x2002 << 112) + (number << 80)))
    assert not is_public(IPv6Address((0x20010000 << 96) + (number << 64) + number))


@pytest.mark.parametrize(
    "url",
    [
        *"""
        http://127.0.0.1 http://127.1 http://2130706433 http://0x7f000001 http://0x7f.0.0.1 http://017700000001
        http://0177.0.0.1 http://127.0.0.1. http://[::1] http://[::ffff:127.0.0.1] http://[fe80::1%25lo]
        ftp://example.com file:///etc/passwd gopher://example.com data:text/html,x javascript:1 http://0/ http://0x/
        http://user@example.com http://:secret@example.com http://example.com:22 http://example.com:8080
        https://example.com:0 http://example.com:99999 http:// http:///x //example.com example.com http://[::1 http://a]b
        http://169.254.169.254/latest/meta-data http://[fd00:ec2::254]/ http://a%0d%0ab.com
        """.split(),
        "http://\uff11\uff12\uff17.0.0.1",
        "http://127\u30020\u30020\u30021",
        "http://exa mple.com",
        "http://example.com/" + "x" * 2000,
        "http://\ud800.com",
        "",
        " ",
        "\x00",
    ],
)
def test_urls_that_are_not_plain_public_web_urls_are_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        Reach().url(url)


@given(st.text(max_size=50))
def test_any_text_is_an_allowed_url_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"http://127.0.0.1{text}"):
        try:
            checked = Reach().url(url)
        except Forbidden:
            continue
        assert checked.scheme in ("http", "https")
        assert checked.port in (80, 443)
        assert checked.raw_host != "127.0.0.1"


async def test_names_with_private_addresses_are_refused_without_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answers = {
        "localhost": "127.0.0.1",
        "inside.example": "10.0.0.1",
        "six.example": "::1",
        "link.example": "fe80::1%1",
    }

    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[host], port))]

    def unknown(*_: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    async with Browser() as browser:
        for host in answers:
            assert await reason(browser, f"http://{host}/") == "No HTML found: the address is not on the public web"
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        assert await reason(browser, "http://nobody.example/") == "No HTML found: the host is not known"
    assert asked == list(answers)


async def test_the_connection_goes_to_the_checked_address_if_the_name_resolves_differently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.host} on {request.transport.get_extra_info('sockname')[0]}")  # type: ignore[union-attr]

    answers = iter(["127.0.0.1", "127.0.0.2", "127.0.0.2"])

    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    only = Reach(lambda address: str(address) == "127.0.0.1", None)
    async with serving(handler, "127.0.0.1", "127.0.0.2") as url, Browser(only) as browser:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        renamed = url.replace("127.0.0.1", "rebinding.example")
        assert (await browser.page(renamed)).endswith("on 127.0.0.1")
        assert "not on the public web" in await reason(browser, renamed)
    assert len(list(answers)) == 1


async def test_every_redirect_is_checked() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(f"{request.transport.get_extra_info('sockname')[0]}{request.path}")  # type: ignore[union-attr]
        if request.path == "/text":
            return web.Response(text="arrived")
        targets = {
            "/fine": "/text",
            "/private": str(request.url.with_host("127.0.0.2")),
            "/file": "file:///etc/passwd",
            "/excluded": "http://www.Excluded.example./",
            "/loop": "/loop",
            "/bad": "http://[",
        }
        return web.Response(status=302, headers={"Location": targets[request.path]})

    only = Reach(lambda address: str(address) == "127.0.0.1", None, frozenset({"excluded.example"}))
    async with serving(handler, "127.0.0.1", "127.0.0.2") as url, Browser(only) as browser:
        assert "URL is in excluded domains" in await reason(browser, f"{url}/excluded")
        assert await browser.page(f"{url}/fine") == "arrived"
        assert "not on the public web" in await reason(browser, f"{url}/private")
        assert "only http and https" in await reason(browser, f"{url}/file")
        assert "more than 5 redirects" in await reason(browser, f"{url}/loop")
        assert "No HTML found" in await reason(browser, f"{url}/bad")
    assert not any(address.startswith("127.0.0.2") for address in seen)


async def test_pages_are_read_within_limits() -> None:
    asked_in_vain = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        path, kind = request.path, {"Content-Type": "text/html"}
        if path == "/endless":
            reply = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await reply.prepare(request)
            while True:
                await reply.write(b"again " * 10_000)
        if path == "/slow":
            await asked_in_vain.wait()
        bodies = {
            "/page": web.Response(text=HTML, headers=kind),
            "/packed": web.Response(body=gzip.compress(HTML.encode()), headers={**kind, "Content-Encoding": "gzip"}),
            "/bomb": web.Response(
                body=BOMB,
                headers={"Content-Type": "text/plain", "Content-Encoding": "gzip"},
            ),
            "/broken": web.Response(body=b"\x1f\x8bnothing", headers={**kind, "Content-Encoding": "gzip"}),
            "/brotli": web.Response(body=b"x", headers={**kind, "Content-Encoding": "br"}),
            "/latin": web.Response(
                body="Zürich".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"}
            ),
            "/empty": web.Response(text="<html></html>", headers=kind),
            "/pdf": web.Response(body=b"%PDF", headers={"Content-Type": "application/pdf"}),
            "/gone": web.Response(status=404),
        }
        return bodies[path]

    config = SearchConfig(allow_private_addresses=True, page_timeout_seconds=300.0, page_bytes=100_000)
    async with serving(handler) as url, open_browser(config) as browser:
        for path in ("/page", "/packed"):
            assert await browser.page(url + path) == PROSE.strip()
        assert len(await browser.page(f"{url}/endless")) <= 100_000
        assert len(await browser.page(f"{url}/bomb")) == 100_000
        assert await browser.page(f"{url}/latin") == "Zürich"
        assert await reason(browser, f"{url}/gone") == "No HTML found: the server answered 404"
        assert await reason(browser, f"{url}/pdf") == "No HTML found: the page is application/pdf"
        assert await reason(browser, f"{url}/brotli") == "No HTML found: the page is packed as br"
        assert await reason(browser, f"{url}/empty") == "No text found: the page holds no readable text"
        assert (await reason(browser, f"{url}/broken")).startswith("No text found: the page could not be read")
        assert (
            await reason(browser, "http://127.0.0.1:1/")
            == "No HTML found: the server cannot be reached (ClientConnectorError)"
        )
    async with serving(handler) as url, Browser(EVERYWHERE, seconds=0.2) as browser:
        assert await reason(browser, f"{url}/slow") == "No HTML found: no answer after 0.2 s"
        asked_in_vain.set()


@given(st.binary(max_size=300), st.sampled_from(["", "gzip"]), st.sampled_from(["text/plain; charset=x", "text/plain"]))
def test_any_body_gives_a_text(body: bytes, encoding: str, kind: str) -> None:
    packed = gzip.compress(body) if encoding else body
    assert isinstance(text_of(packed, encoding, kind, 1000), str)
