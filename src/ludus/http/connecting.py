"""How a client reaches a server: the addresses of its name, TLS, and a proxy that the environment names."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import Callable
from functools import cache
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import aiohappyeyeballs

from ludus.errors import UserError
from ludus.runtime.numbers import whole_number
from ludus.runtime.urls import shown_url

P = TypeVar("P", bound=asyncio.BaseProtocol)

#: Seconds for which the addresses of a name are reused, so that a thousand connections ask for them once.
_ADDRESS_SECONDS = 10.0
_PROXY_REPLY_BYTES = 1 << 16


class HttpProxy:
    """An HTTP proxy: where it is, and the header that it wants. Only aiohttp can speak to one whose scheme is https."""

    def __init__(self, url: str) -> None:
        self.url = url if "://" in url else f"http://{url}"
        parts = urlsplit(self.url)
        self.scheme = parts.scheme
        try:
            self.host, self.port = parts.hostname or "", parts.port or (443 if self.scheme == "https" else 80)
        except ValueError:
            self.host, self.port = "", 0
        if not self.host:
            raise UserError(f"{shown_url(url)} is not the URL of a proxy", "Write it as http://HOST:PORT")
        if self.scheme not in ("http", "https"):
            cause = f"{shown_url(url)}: {self.scheme} proxies are not supported"
            raise UserError(cause, "Name an http:// or https:// proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY")
        self.name = f"{self.host}:{self.port}"
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        self.authorization = "Basic " + base64.b64encode(user.encode()).decode() if parts.username else ""


def proxy_of(url: SplitResult) -> HttpProxy | None:
    """The proxy for a URL, from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY. Loopback needs no proxy."""
    host, proxies = url.hostname or "", getproxies_environment()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or _is_loopback(host) or proxy_bypass_environment(url.netloc.rpartition("@")[2], proxies):
        return None
    return HttpProxy(named)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Route:
    """The way to one server, on which connections are opened. With `unix`, that is the path of a Unix socket."""

    def __init__(self, host: str, port: int, tls: bool, proxy: HttpProxy | None, unix: str | None) -> None:
        self._host, self._port, self._tls, self._proxy, self._unix = host, port, tls, proxy, unix
        self._addresses: list[Any] = []
        self._known_until = 0.0
        self._asking: asyncio.Task[list[Any]] | None = None

    async def connect(self, make: Callable[[], P]) -> P:
        """Open a connection for the protocol that `make` returns. Raises `OSError` if the server cannot be reached."""
        loop = asyncio.get_running_loop()
        if self._unix is not None:
            return (await loop.create_unix_connection(make, self._unix))[1]
        sock = await aiohappyeyeballs.start_connection(await self._resolved(), happy_eyeballs_delay=0.25, interleave=1)
        try:
            if self._tls and self._proxy is not None:
                await self._tunnel(sock, self._proxy)
            context, name = (_tls_context(), self._host) if self._tls else (None, None)
            _, protocol = await loop.create_connection(make, sock=sock, ssl=context, server_hostname=name)
        except BaseException:
            sock.close()
            raise
        return protocol

    async def _resolved(self) -> list[Any]:
        """The addresses of the server, or of its proxy."""
        if monotonic() < self._known_until:
            return self._addresses
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._resolve())
        return await asyncio.shield(self._asking)

    async def _resolve(self) -> list[Any]:
        host, port = (self._proxy.host, self._proxy.port) if self._proxy is not None else (self._host, self._port)
        try:
            addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        finally:
            self._asking = None
        self._addresses, self._known_until = addresses, monotonic() + _ADDRESS_SECONDS
        return addresses

    async def _tunnel(self, sock: socket.socket, proxy: HttpProxy) -> None:
        """Ask the proxy for a connection to the server. The server sends nothing before TLS begins."""
        loop = asyncio.get_running_loop()
        host = f"[{self._host}]" if ":" in self._host else self._host
        target, login = f"{host}:{self._port}", proxy.authorization
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *([f"Proxy-Authorization: {login}"] if login else [])]
        await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode())
        reply = b""
        while b"\r\n\r\n" not in reply:
            piece = await loop.sock_recv(sock, 4096)
            reply += piece
            if not piece or len(reply) > _PROXY_REPLY_BYTES:
                raise OSError(f"the proxy {proxy.name} did not answer CONNECT")
        status = b"".join(reply.split(b"\r\n", 1)[0].split(b" ", 2)[1:2])
        if status != b"200":
            number = whole_number(status.decode("latin-1"), digits=3)
            said = "an answer that is not HTTP" if number is None else f"status {number}"
            raise OSError(f"the proxy {proxy.name} refused: {said}")


@cache
def _tls_context() -> ssl.SSLContext:
    """Verifies certificates and host names. Made once, because reading the certificates is slow."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def reason_of(error: OSError) -> str:
    """Why a connection could not be opened, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return str(error.strerror or error) or "the connection was closed"
