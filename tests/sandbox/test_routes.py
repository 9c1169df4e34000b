"""A route from a sandbox to one port of the host: that port, nothing else, and not a moment longer than asked for."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from sandboxes import kinds, needs, opened, provided, spec_for
from waiting import until_async

from ludus.sandbox import Sandbox, SandboxError, SandboxProvider
from ludus.sandbox.pool import SandboxPool
from ludus.sandbox.routes import CONNECTIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(handle: Handler) -> AsyncIterator[int]:
    """A server on the host's loopback."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read to the end of the input, then answer: this needs a connection of which one half is closed."""
    writer.write(b"got " + await reader.read())
    writer.close()


#: Sends its arguments in one connection and prints the answer, or the kind of error.
ASK = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as one:
        one.sendall(sys.argv[2].encode())
        one.shutdown(socket.SHUT_WR)
        data = b""
        while part := one.recv(1 << 16): data += part
        print(data.decode())
except OSError as error:
    print(type(error).__name__)
"""


async def ask(sandbox: Sandbox, port: int, text: str = "x") -> str:
    return (await sandbox.python(ASK, argv=[str(port), text])).text.strip()


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[param for param in kinds() if param.values != ("process",)]
)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    async with provided(request.param) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    async with await provider.open(spec_for(provider.name)) as found:
        yield found


async def test_only_the_routed_port_is_reached_and_only_until_the_route_is_closed(sandbox: Sandbox):
    async with listening(echo) as port, listening(echo) as other:
        assert await ask(sandbox, port) == "ConnectionRefusedError"
        assert await sandbox.route(port) == await sandbox.route(port) == f"http://127.0.0.1:{port}"
        assert await ask(sandbox, port, "CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n") == (
            "got CONNECT 127.0.0.1:22 HTTP/1.1"
        )
        assert await ask(sandbox, other) == "ConnectionRefusedError"
        assert await sandbox.route(other) == f"http://127.0.0.1:{other}"
        assert await ask(sandbox, other, "second") == "got second"
        await sandbox.close_routes()
        assert await ask(sandbox, port) == "ConnectionRefusedError"


async def test_bytes_pass_in_both_directions_as_soon_as_they_are_there(sandbox: Sandbox):
    """The server sends each event only when the program has answered the one before."""

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(200):
            writer.write(f"event {number}\n".encode())
            assert await reader.readline() == f"event {number}\n".encode()
        writer.close()

    program = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    lines = one.makefile("rwb", buffering=0)
    count = 0
    for line in lines:
        lines.write(line)
        count += 1
    print(count)
"""
    async with listening(events) as port:
        await sandbox.route(port)
        assert (await sandbox.python(program, argv=[str(port)])).text == "200\n"


async def test_large_answers_arrive_whole_while_the_host_does_other_work(sandbox: Sandbox):
    data, turns = bytes(range(256)) * 40_000, 0

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    program = """
import hashlib, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    digest = hashlib.sha256()
    while part := one.recv(1 << 16): digest.update(part)
    print(digest.hexdigest())
"""
    turning = asyncio.create_task(turn())
    async with listening(large) as port:
        await sandbox.route(port)
        assert (await sandbox.python(program, argv=[str(port)])).text.strip() == hashlib.sha256(data).hexdigest()
    turning.cancel()
    assert turns > 3


async def test_a_program_with_endless_connections_holds_a_bounded_number_of_ours(sandbox: Sandbox):
    open_now, most = 0, 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await reader.read()
        open_now -= 1
        writer.close()

    program = """
import socket, sys
socket.setdefaulttimeout(5)
held = []
for _ in range(150):
    try: held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    except OSError: break
print(len(held))
"""
    async with listening(hold) as port:
        await sandbox.route(port)
        assert int((await sandbox.python(program, argv=[str(port)])).text) >= CONNECTIONS
        assert most <= CONNECTIONS
        assert await ask(sandbox, port) == ""  # the route serves on after its connections ended
        await until_async(lambda: open_now == 0)


async def test_a_route_to_a_port_where_nobody_listens_ends_connections_at_once(sandbox: Sandbox):
    async with listening(echo) as port:
        pass
    await sandbox.route(port)
    assert await ask(sandbox, port) in ("", "ConnectionResetError", "OSError")


async def test_connections_are_cut_when_the_sandbox_closes(provider: SandboxProvider):
    connected, ended = asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        ended.set()
        writer.close()

    async with listening(hold) as port:
        sandbox = await provider.open(spec_for(provider.name))
        await sandbox.route(port)
        hold_open = ASK.replace("one.shutdown(socket.SHUT_WR)", "") + "import time; time.sleep(1000)"
        running = asyncio.create_task(sandbox.python(hold_open, argv=[str(port), "x"], timeout=1000))
        await until_async(lambda: connected.is_set() or running.done())  # a program that fails to connect ends
        await sandbox.close()
        await until_async(ended.is_set)
        with pytest.raises(SandboxError, match="closed while a program ran"):
            await running
        with pytest.raises(SandboxError, match="gone"):
            await sandbox.route(port)


async def test_a_closed_route_cuts_a_connection_whose_program_reads_nothing(sandbox: Sandbox):
    """Megabytes wait for the program. None of them may reach it after the route is closed."""
    passed_on, loop = 0.0, asyncio.get_running_loop()

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal passed_on
        with contextlib.suppress(OSError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
                passed_on = loop.time()

    program = """
import select, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    waiting = select.poll()
    waiting.register(one, select.POLLRDHUP)
    print("cut" if waiting.poll(30_000) else "still open")
"""
    async with listening(large) as port:
        await sandbox.route(port)
        running = asyncio.create_task(sandbox.python(program, argv=[str(port)], timeout=120))
        await until_async(lambda: passed_on and loop.time() - passed_on > 0.3)  # all buffers are full
        await sandbox.close_routes()
        assert (await running).text.strip() == "cut"


async def test_the_next_user_of_a_warm_sandbox_has_no_route(provider: SandboxProvider):
    pool = SandboxPool(provider, warm=1)
    async with listening(echo) as port:
        async with await pool.open(spec_for(provider.name)) as first:
            await first.route(port)
            assert await ask(first, port, "first") == "got first"
        async with await pool.open(spec_for(provider.name)) as second:
            assert await ask(second, port) == "ConnectionRefusedError"


@needs("bubblewrap")
async def test_programs_with_a_route_do_not_wait_for_a_free_place_in_the_pool():
    """More programs than the pool runs at once wait for one server; all of them must have arrived to go on."""
    here = 0

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal here
        here += 1
        await until_async(lambda: here == places + 1)
        await echo(reader, writer)

    async with provided("bubblewrap") as provider, listening(meet) as port:
        pool = SandboxPool(provider, warm=1)
        places = pool._slots._value
        sandboxes = [await pool.open(spec_for("bubblewrap")) for _ in range(places + 1)]
        for sandbox in sandboxes:
            await sandbox.route(port)
        assert set(await asyncio.gather(*(ask(sandbox, port) for sandbox in sandboxes))) == {"got x"}
        for sandbox in sandboxes:
            await sandbox.close()


@needs("process")
async def test_process_has_a_route_only_with_the_hosts_network():
    async with listening(echo) as port:
        async with opened("process") as sandbox:
            with pytest.raises(SandboxError, match="process has no route to one port: use bubblewrap or oci"):
                await sandbox.route(port)
        async with opened("process", network=True) as sandbox:
            assert await sandbox.route(port) == f"http://127.0.0.1:{port}"
            assert await ask(sandbox, port) == "got x"
