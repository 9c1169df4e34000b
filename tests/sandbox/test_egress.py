"""The way out to named hosts: open while a task is prepared, closed afterwards."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from sandboxes import needs

from ludus.sandbox import Sandbox, SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider

pytestmark = needs("bubblewrap")

#: An address of this machine that programs do not take for their own loopback.
HOST = "127.9.9.9"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} for {self.headers['Host']}".encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    provider = BubblewrapProvider()
    async with await provider.open(SandboxSpec()) as opened:
        yield opened
    await provider.close()


def fetch(url: str) -> str:
    return f"""
import urllib.request
try:
    print(urllib.request.urlopen({url!r}, timeout=20).read().decode())
except Exception as error:
    print(type(error).__name__, error)
"""


async def test_only_the_named_hosts_are_reached_and_only_for_a_while(sandbox: Sandbox, port: int):
    program = fetch(f"http://{HOST}:{port}/data?x=1")
    assert "URLError" in (await sandbox.python(program)).text
    await sandbox.allow_hosts([f"{HOST}:{port}"])
    assert (await sandbox.python(program)).text == f"/data?x=1 for {HOST}:{port}\n"
    assert "403" in (await sandbox.python(fetch(f"http://127.9.9.8:{port}/"))).text
    assert "403" in (await sandbox.python(fetch(f"http://{HOST}:{port + 1}/"))).text
    await sandbox.deny_hosts()
    assert "URLError" in (await sandbox.python(program)).text


async def test_a_tunnel_is_cut_when_the_hosts_are_denied(sandbox: Sandbox, port: int):
    await sandbox.allow_hosts([f"{HOST}:{port}"])
    tunnel = f"""
import socket
one = socket.create_connection(("127.0.0.1", 3128))
one.sendall(b"CONNECT {HOST}:{port} HTTP/1.1\\r\\n\\r\\n")
print(one.recv(100).split()[1])
one.sendall(b"GET /inside HTTP/1.0\\r\\n\\r\\n")
data = b""
while part := one.recv(1000): data += part
print(data.split()[-3])
"""
    assert (await sandbox.python(tunnel)).text == "b'200'\nb'/inside'\n"
    await sandbox.deny_hosts()
    assert "refused" in (await sandbox.python(tunnel)).stderr.decode()


@pytest.mark.parametrize(
    "name",
    ["localhost", "127.9.9.9", "10.0.0.1", "169.254.169.254", "[::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"],
)
async def test_a_name_without_a_port_does_not_open_private_addresses(name: str, sandbox: Sandbox):
    await sandbox.allow_hosts([name.strip("[]"), "*.invalid"])
    program = f"""
import socket
one = socket.create_connection(("127.0.0.1", 3128))
one.sendall(b"CONNECT {name}:80 HTTP/1.1\\r\\n\\r\\n")
print(one.recv(100).split()[1])
"""
    assert (await sandbox.python(program)).text == "b'403'\n"


@pytest.mark.parametrize(
    "head", [b"hello\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 20_000, b"CONNECT a:99999999 HTTP/1.1\r\n\r\n"]
)
async def test_nonsense_reaches_nothing(head: bytes, sandbox: Sandbox):
    await sandbox.allow_hosts(["*"])
    program = f"""
import socket
one = socket.create_connection(("127.0.0.1", 3128))
one.sendall({head!r})
one.shutdown(socket.SHUT_WR)
try:
    print(one.recv(100).split()[1:2])
except ConnectionError:
    print([])
"""
    assert (await sandbox.python(program)).text in ("[b'400']\n", "[b'403']\n", "[]\n")


async def test_a_pooled_sandbox_is_closed_to_the_network_for_its_next_user(port: int):
    from ludus.sandbox.pool import SandboxPool

    with contextlib.closing(socket.socket()):
        pool = SandboxPool(BubblewrapProvider(), warm=1)
        async with await pool.open(SandboxSpec()) as first:
            await first.allow_hosts([f"{HOST}:{port}"])
        async with await pool.open(SandboxSpec()) as second:
            assert "URLError" in (await second.python(fetch(f"http://{HOST}:{port}/"))).text
            assert (await second.exec("echo $http_proxy")).text == "\n"
        await pool.close()
