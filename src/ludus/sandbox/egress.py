"""A way out of a sandbox to some hosts, for a while: an HTTP proxy that listens inside the sandbox's network.

A sandbox has no network but its own loopback. A helper process enters that network, opens a listening socket there and
hands it to us; we answer on it as a proxy that connects to the allowed hosts only. When it closes, nothing is left
that a program could talk to.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable

from ludus.runtime.threads import in_thread
from ludus.sandbox.listening import listen_inside, pump

#: Where the proxy listens inside.
PORT = 3128

_HEAD_BYTES = 16 << 10
_PORTS = (80, 443)
_SECONDS = 30.0
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_REQUEST = re.compile(rb"(CONNECT|[A-Z]+) (?:http://)?(\[[0-9a-fA-F:.]+\]|[^/:\s]+)(?::(\d{1,5}))?(\S*) HTTP/1\.[01]")


class Egress:
    """The proxy of one sandbox. `hosts` are names (`files.example`), patterns (`*.example`) or `HOST:PORT`.

    A name without a port allows the ports 80 and 443 of public addresses. A port given with a name allows that port,
    and also addresses of private networks.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = [_Host(text) for text in hosts]
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, pid: int) -> None:
        """Listen in the network of a process."""
        listener = await in_thread(listen_inside, pid, PORT)
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=_HEAD_BYTES)

    async def close(self) -> None:
        """Stop listening and cut all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @staticmethod
    def environment() -> dict[str, str]:
        """The variables by which programs find the proxy."""
        url = f"http://127.0.0.1:{PORT}"
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        return {**dict.fromkeys(names, url), "no_proxy": "localhost,127.0.0.1"}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            match = _REQUEST.match(head)
            if match is None:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                return
            method, name, port_text, path = match.groups()
            host = name.decode("ascii", "replace").strip("[]").lower()
            port = int(port_text or (443 if method == b"CONNECT" else 80))
            address = await self._address(host, port)
            if address is None:
                text = f"the sandbox may not reach {host}:{port}\n".encode()
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                return
            try:
                their_reader, their_writer = await asyncio.open_connection(*address)
            except OSError:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
        try:
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                rest = head[match.end() :].replace(b"\r\nProxy-Connection: keep-alive", b"")
                their_writer.write(b"%s %s HTTP/1.1\r\nConnection: close%s" % (method, path or b"/", rest))
            await asyncio.gather(pump(reader, their_writer), pump(their_reader, writer))
        finally:
            their_writer.close()

    async def _address(self, host: str, port: int) -> tuple[str, int] | None:
        """The address to connect to, or None if it is not allowed. The name is resolved once, here."""
        allowed = [entry for entry in self._hosts if entry.allows(host, port)]
        if not allowed:
            return None
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for *_, address in addresses:
            if any(entry.port is not None for entry in allowed) or _is_public(str(address[0])):
                return str(address[0]), port
        return None


def is_public_entry(text: str) -> bool:
    """Whether an entry of the list of hosts allows public addresses only."""
    return _Host(text).port is None


def _is_public(text: str) -> bool:
    """Whether an address is public. Some IPv6 addresses stand for an IPv4 address, which counts."""
    address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_global


class _Host:
    """One entry of the list of hosts."""

    def __init__(self, text: str) -> None:
        name, _, port = text.rpartition(":") if re.search(r":\d+$", text) else (text, "", "")
        self.name = name.lower().strip("[]")
        self.port = int(port) if port else None

    def allows(self, host: str, port: int) -> bool:
        """Whether this entry allows a connection."""
        named = host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name
        return named and (port == self.port if self.port is not None else port in _PORTS)
