"""A sandbox with our supervisor inside: the host's end of the socket to `inside/supervisor.py`.

One request at a time. If the socket breaks, or a call is cancelled, the sandbox is killed: a program may still run in
it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ludus.runtime.frames import HEADER, frame_start
from ludus.sandbox.cgroups import ControlGroup
from ludus.sandbox.egress import Egress
from ludus.sandbox.file_work import check_written, files_program, read_content
from ludus.sandbox.protocol import READ_BYTES, ExecResult, Program, Sandbox, SandboxError, SandboxSpec
from ludus.sandbox.routes import PortRoute
from ludus.sandbox.supervised_start import supervisor_source

#: Seconds that a supervisor gets to answer after its program's time is up, on a busy machine.
_GRACE = 30.0

#: Seconds for a supervisor to start, and to end when it is asked to.
_START, _STOP = 60.0, 30.0


class SupervisedSandbox(Sandbox):
    """A sandbox whose first process is our supervisor."""

    def __init__(
        self,
        spec: SandboxSpec,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        group: ControlGroup,
        on_close: Callable[[SupervisedSandbox], None],
    ) -> None:
        self.spec = spec
        self.suspicious = False  #: whether a program here passed a limit, so that the sandbox is not reused
        self.uses = 0
        self.pid = process.pid  #: of the first process inside, as the host sees it
        self._process = process
        self._control = control
        self._group = group
        self._on_close = on_close
        self._egress: Egress | None = None
        self._routes: dict[int, PortRoute] = {}
        self._routing = asyncio.Lock()
        self._turn = asyncio.Lock()
        self.gone = False
        self._exchanging = False
        self._runs_long = False  # whether a program runs that may take hours: calls must not wait for it
        self._oom_kills = 0
        self._died_of_memory = False  # the kernel killed the supervisor: all later programs are out of memory too
        self._stderr = ""

    async def start(self, setup: dict[str, Any]) -> None:
        """Wait until the supervisor is ready."""
        self._control.setblocking(False)
        source = supervisor_source()
        await asyncio.get_running_loop().sock_sendall(self._control, len(source).to_bytes(4, "big") + source)
        reply, _ = await self._ask(setup, within=_START)
        if not reply.get("ready"):
            await self.close()
            raise SandboxError(f"the sandbox did not start: {reply.get('cause', reply)!s:.300}")

    def confine(self, pid: int) -> None:
        """Put the first process inside into the control groups. It has started no program yet."""
        self.pid = pid
        try:
            self._group.add(pid)
        except OSError as error:
            raise SandboxError(f"cannot use the control group of the sandbox: {error.strerror}") from error

    async def run(self, program: Program) -> ExecResult:
        """Run a program; a Python program in a fork of the warm interpreter."""
        source = None if program.source is None else program.source.encode(errors="surrogatepass")
        env = {**(self._egress.environment() if self._egress is not None else {}), **program.env}
        start = json.dumps({"argv": program.argv, "cwd": program.cwd, "env": env}).encode()
        self.uses += 1
        request = {
            "number": self.uses,
            "op": "exec" if source is None else "python",
            "timeout": program.timeout,
            "output": program.output_bytes or self.spec.limits.output_bytes,
            "keep_last": program.keep_last,
            "start": len(start),
            "source": len(source or b""),
        }
        body = start + (source or b"") + program.stdin
        reply, output = await self._ask(request, body, within=program.timeout + _GRACE, stop=program.stop)
        size = reply.pop("stdout")
        result = ExecResult(**reply, stdout=output[:size], stderr=output[size:])
        killed = self._out_of_memory()
        if _is_out_of_memory(result, killed):
            result = replace(result, out_of_memory=True, signal=None)
        if killed or result.timed_out or result.out_of_memory or result.limit:
            self.suspicious = True
        return result

    async def work_on_files(
        self, operation: str, request: Mapping[str, Any], stdin: bytes = b"", limit: int | None = None
    ) -> ExecResult:
        """Work on files in a fork of the supervisor: no program of the sandbox has a part in it."""
        cwd = None if operation in ("read", "write") and not request["path"].startswith("/") else "/"
        program = Program((operation, json.dumps(request)), files_program(), stdin, 120.0, cwd, output_bytes=limit)
        return await SupervisedSandbox.run(self, program)

    async def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        """The content of a regular file."""
        asked = {"path": path, "most": max_bytes + 1}
        return read_content(await self.work_on_files("read", asked, limit=max_bytes + 1), path, max_bytes)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file. Folders on the way are made."""
        asked = {"path": path, "mode": 0o755 if executable else 0o644}
        check_written(await self.work_on_files("write", asked, data), path)

    async def end_processes(self) -> None:
        """End every process, and wait until all are gone. The supervisor does it, with nothing of the sandbox's."""
        await self._ask({"op": "end"}, within=_STOP)

    async def reset(self) -> bool:
        """Make the sandbox as new. Returns False if that is not certain: then it must be closed."""
        await self.deny_hosts()
        await self.close_routes()
        if self.gone or self.suspicious or self._turn.locked():  # a program still runs
            return False
        try:
            reply, _ = await self._ask({"op": "reset"}, within=_STOP)
        except SandboxError:
            return False
        return bool(reply.get("clean"))

    async def close(self) -> None:
        """End every process."""
        self.gone = True
        await self.deny_hosts()
        await self.close_routes()
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # wakes a call that waits for its reply
        while self._exchanging:  # noqa: ASYNC110 - the loop still watches the socket
            await asyncio.sleep(0.001)
        self._control.close()
        if not await self._ended(_STOP):
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._ended(_START)
        self._read_stderr()
        self._group.remove()
        self._on_close(self)

    async def allow_hosts(self, hosts: Sequence[str]) -> None:
        """Let programs reach these hosts."""
        await self.deny_hosts()
        egress = Egress(hosts)
        await egress.open(self.pid)
        self._egress = egress

    async def deny_hosts(self) -> None:
        """Close what `allow_hosts` opened."""
        egress, self._egress = self._egress, None
        if egress is not None:
            await egress.close()

    async def route(self, port: int) -> str:
        """Let programs reach a port of this machine. With the host's network they do anyway."""
        async with self._routing:
            if self.gone:
                raise SandboxError("the sandbox is gone")
            if not self.spec.network and port not in self._routes:
                route = PortRoute(port)
                await route.open(self.pid)
                self._routes[port] = route
        return f"http://127.0.0.1:{port}"

    async def close_routes(self) -> None:
        """Close what `route` opened."""
        async with self._routing:
            while self._routes:
                await self._routes.popitem()[1].close()

    def _out_of_memory(self) -> bool:
        """Whether the kernel killed a process here for its memory since the last call."""
        kills, before = self._group.out_of_memory_kills(), self._oom_kills
        self._oom_kills = kills
        return kills > before

    async def _ask(
        self, head: dict[str, Any], body: bytes = b"", *, within: float, stop: asyncio.Event | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for the reply. The supervisor is told when `stop` is set."""
        if self._died_of_memory:
            return {"out_of_memory": True, "stdout": 0}, b""
        if self.gone:
            raise SandboxError("the sandbox is gone")
        if self._runs_long:
            raise SandboxError("the sandbox runs the agent's program, and a second call would wait for its end")
        async with self._turn:
            if self.gone:  # closed while this call waited for its turn
                raise SandboxError("the sandbox is gone")
            self._runs_long = stop is not None and head["keep_last"]
            try:
                async with asyncio.timeout(within):
                    return await self._exchange(head, body, stop)
            except (OSError, EOFError, TimeoutError) as error:
                if self.gone:
                    raise SandboxError("the sandbox was closed while a program ran in it") from error
                self._died_of_memory = self._out_of_memory()
                await self.close()
                if self._died_of_memory:
                    return {"out_of_memory": True, "stdout": 0}, b""
                late = isinstance(error, TimeoutError)
                why = f"did not answer within {within:.0f} s" if late else "ended unexpectedly"
                raise SandboxError(f"the sandbox {why}{self._stderr}") from error
            except BaseException:  # cancelled: the program must not go on, and its reply must not be read by the next
                await asyncio.shield(self.close())
                raise
            finally:
                self._runs_long = False

    async def _exchange(
        self, head: dict[str, Any], body: bytes, stop: asyncio.Event | None
    ) -> tuple[dict[str, Any], bytes]:
        self._exchanging = True
        stopping: asyncio.Task[None] | None = None
        try:
            await self._send(head, body)
            stopping = asyncio.create_task(self._stop_at(stop, head["number"])) if stop is not None else None
            size, rest = HEADER.unpack(await self._exactly(HEADER.size))
            data = await self._exactly(size + rest)
        finally:
            if stopping is not None:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
            self._exchanging = False
        return json.loads(data[:size]), bytes(data[size:])

    async def _stop_at(self, stop: asyncio.Event, number: int) -> None:
        """Tell the supervisor to end a program. It ignores this if the program has ended already."""
        await stop.wait()
        await self._send({"op": "stop", "number": number})

    async def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        message = frame_start(json.dumps(head).encode(), len(body)) + body
        await asyncio.get_running_loop().sock_sendall(self._control, message)

    async def _exactly(self, length: int) -> bytearray:
        loop, data = asyncio.get_running_loop(), bytearray()
        while len(data) < length:
            part = await loop.sock_recv(self._control, min(length - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return data

    async def _ended(self, seconds: float) -> bool:
        """Wait for the end of the process that we started, and with it of everything inside."""
        if self._process.poll() is not None:
            return True
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        try:
            pidfd = os.pidfd_open(self._process.pid)
        except ProcessLookupError:
            return self._process.poll() is not None
        loop.add_reader(pidfd, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        self._process.wait()
        return True

    def _read_stderr(self) -> None:
        """Keep the stderr of the program that made the sandbox."""
        if self._process.stderr is not None and not self._process.stderr.closed:
            ended = self._process.returncode is not None
            text = self._process.stderr.read(500).decode(errors="replace").strip() if ended else ""
            self._stderr = f": {' '.join(text.split())}" if text else ""
            self._process.stderr.close()


def _is_out_of_memory(result: ExecResult, killed: bool) -> bool:
    """Whether a program ran out of memory: the kernel killed it, or Python raised MemoryError."""
    if result.signal == signal.SIGKILL and killed:
        return True
    return result.exit_code != 0 and b"\nMemoryError" in result.stderr[-200:]
