"""A sandbox with our supervisor inside: the host's end of the socket to `supervisor.py`.

One request at a time. If the socket breaks, or a call is cancelled, the sandbox is killed: nobody knows what still runs
in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ludus.sandbox.cgroups import ControlGroup, controllers
from ludus.sandbox.protocol import HOME, ExecResult, Sandbox, SandboxError, SandboxSpec

_HEADER = struct.Struct("!II")

#: Seconds that a supervisor gets to answer after its program's time is up, on a busy machine.
_GRACE = 30.0

#: Where programs find the packages of their spec.
PACKAGES = "/opt/packages"

#: Seconds for a supervisor to start, and to end when it is asked to.
_START, _STOP = 60.0, 2.0


#: What the interpreter inside runs first: the supervisor's text comes through the socket.
_BOOTSTRAP = """
import os
def read(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or os._exit(1)
    return data
exec(compile(read(int.from_bytes(read(4), "big")), "supervisor", "exec"))
"""


def supervisor_command() -> list[str]:
    """The command that starts the supervisor, with the socket to the host as its standard input."""
    return [base_python(), "-S", "-s", "-B", "-c", _BOOTSTRAP]


@cache
def supervisor_source() -> str:
    """The text of the program that runs inside."""
    return Path(__file__).with_name("supervisor.py").read_text(encoding="utf-8")


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
        self.suspicious = False  #: whether a program here did what should make us throw the sandbox away
        self.uses = 0
        self.pid = process.pid  #: of the first process inside, as the host sees it
        self._process = process
        self._control = control
        self._group = group
        self._on_close = on_close
        self._turn = asyncio.Lock()
        self.gone = False
        self._oom_kills = 0

    async def start(self, setup: dict[str, Any]) -> None:
        """Wait until the supervisor is ready."""
        self._control.setblocking(False)
        source = supervisor_source().encode()
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

    async def exec(
        self,
        command: Sequence[str] | str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,  # noqa: ASYNC109
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run a program or a shell script."""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        return await self._run({"op": "exec", "argv": argv, "cwd": cwd, "env": dict(env or {})}, stdin, timeout)

    async def python(
        self,
        source: str,
        *,
        argv: Sequence[str] = (),
        stdin: bytes = b"",
        timeout: float = 30.0,  # noqa: ASYNC109
    ) -> ExecResult:
        """Run a Python program in a fork of the warm interpreter."""
        text = source.encode(errors="surrogatepass")
        return await self._run({"op": "python", "argv": list(argv), "source": len(text)}, text + stdin, timeout)

    async def add_files(self) -> None:
        """Write the files of the spec."""
        for path, data in self.spec.files.items():
            await self.write(path, data)

    async def reset(self) -> bool:
        """Make the sandbox as new. Returns False if that is not certain: then it must be closed."""
        if self.gone or self.suspicious:
            return False
        try:
            reply, _ = await self._ask({"op": "reset"}, within=_STOP)
        except SandboxError:
            return False
        return bool(reply.get("clean"))

    async def close(self) -> None:
        """End every process."""
        self.gone = True
        self._control.close()
        if not await self._ended(_STOP):
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._ended(_START)
        self._group.remove()
        self._on_close(self)

    async def _trusted(self, command: Sequence[str], *, stdin: bytes = b"", limit: int | None = None) -> ExecResult:
        request: dict[str, Any] = {"op": "exec", "argv": list(command)}
        return await self._run(request, stdin, 60.0, limit)

    async def _run(self, request: dict[str, Any], body: bytes, seconds: float, limit: int | None = None) -> ExecResult:
        request |= {"timeout": seconds, "output": limit or self.spec.limits.output_bytes}
        self.uses += 1
        reply, output = await self._ask(request, body, within=seconds + _GRACE)
        size = reply.pop("stdout")
        result = ExecResult(**reply, stdout=output[:size], stderr=output[size:])
        if result.signal == signal.SIGKILL and self._out_of_memory():
            result = ExecResult(**{**asdict(result), "out_of_memory": True, "signal": None})
        if result.timed_out or result.out_of_memory or result.limit:
            self.suspicious = True
        return result

    def _out_of_memory(self) -> bool:
        """Whether the kernel ended a process here for its memory since the last time we looked."""
        kills, before = self._group.out_of_memory_kills(), self._oom_kills
        self._oom_kills = kills
        return kills > before

    async def _ask(self, head: dict[str, Any], body: bytes = b"", *, within: float) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for the reply."""
        if self.gone:
            raise SandboxError("the sandbox is gone")
        async with self._turn:
            text = json.dumps(head).encode()
            try:
                async with asyncio.timeout(within):
                    loop = asyncio.get_running_loop()
                    await loop.sock_sendall(self._control, _HEADER.pack(len(text), len(body)) + text + body)
                    size, rest = _HEADER.unpack(await self._exactly(_HEADER.size))
                    data = await self._exactly(size + rest)
                    return json.loads(data[:size]), bytes(data[size:])
            except (OSError, EOFError, TimeoutError) as error:
                out_of_memory = self._out_of_memory()
                await self.close()
                if out_of_memory:
                    return {"out_of_memory": True, "stdout": 0}, b""
                late = isinstance(error, TimeoutError)
                why = f"did not answer within {within:.0f} s" if late else "ended unexpectedly"
                raise SandboxError(f"the sandbox {why}{self._last_words()}") from error
            except BaseException:  # cancelled: the program must not go on, and its reply must not be read by the next
                await asyncio.shield(self.close())
                raise

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

    def _last_words(self) -> str:
        """What the program that makes the sandbox wrote before it ended."""
        if self._process.stderr is None or self._process.poll() is None:
            return ""
        text = self._process.stderr.read(500).decode(errors="replace").strip()
        return f": {' '.join(text.split())}" if text else ""


def setup_message(spec: SandboxSpec, writable: Sequence[str], packages: Sequence[str], **more: Any) -> dict[str, Any]:
    """What a supervisor must know before it runs a program."""
    limits = spec.limits
    return {
        "home": HOME,
        "writable": list(writable),
        "packages": list(packages),
        "preload": list(spec.preload),
        "background": spec.background,
        "env": program_environment(spec),
        "watch_memory": controllers().memory is None,
        "own_user": False,
        "limits": {
            "memory": limits.memory_mb << 20,
            "disk": limits.disk_mb << 20,
            "files": limits.files,
            "open_files": limits.open_files,
            "processes": limits.processes,
        },
        **more,
    }


def program_environment(spec: SandboxSpec) -> dict[str, str]:
    """The environment of a program. Hash seeds are fixed, so that a program prints the same every time."""
    path = dict.fromkeys([os.path.dirname(base_python()), "/usr/local/bin", "/usr/bin", "/bin"])
    return {
        "PATH": ":".join(path),
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "USER": "user",
        "PYTHONHASHSEED": "0",
        **({"PYTHONPATH": PACKAGES} if spec.packages else {}),
        **spec.env,
    }


def base_python() -> str:
    """The interpreter behind this one: that of a virtual environment is a link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
