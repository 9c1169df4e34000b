"""Runs a program of this machine with a deadline, without a shell, and keeps a bounded part of its output.

A program that leaves processes behind does not delay the result: its own end counts, not that of its pipes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nemo_gym.sandbox.providers._types import SandboxExecResult

#: The part of stdout and of stderr that is kept.
OUTPUT_BYTES = 16 << 20

#: The exit code and the error type of a command that was stopped at its deadline.
TIMEOUT_CODE, TIMEOUT = 124, "timeout"

#: Seconds for the last output of processes that have ended or were killed.
_DRAIN = 5.0
#: Seconds for the last output where processes in the background may hold the pipes open.
_DRAIN_BACKGROUND = 0.2


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False

    @property
    def last_line(self) -> str:
        """The last line of stderr, else of stdout, cut to 300 characters."""
        said = (self.stderr.strip() or self.stdout.strip())[-2000:].decode(errors="replace")
        return said.rpartition("\n")[2].strip()[:300]

    @property
    def result(self) -> SandboxExecResult:
        """The same as the result of a sandbox's command. A signal N is the exit code 128 + N, as in a shell."""
        code = TIMEOUT_CODE if self.timed_out else self.code if self.code >= 0 else 128 - self.code
        stdout, stderr = (data.decode(errors="replace") for data in (self.stdout, self.stderr))
        return SandboxExecResult(stdout, stderr, code, TIMEOUT if self.timed_out else None)


async def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float | None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    keep_background: bool = False,
) -> Ended:
    """Run a program in a session of its own. At its deadline, or when we are cancelled, its process group is killed.

    `stdout` takes the output in place of the result. Processes that are left at the end are killed too, unless
    `keep_background`. Raises `OSError` if the program cannot start.
    """
    async with AsyncExitStack() as stack:
        output = None if stdout is not None else await stack.enter_async_context(_captured(keep_background))
        errors = await stack.enter_async_context(_captured(keep_background))
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=stdout if output is None else output.write_end,
            stderr=errors.write_end,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
        pipes = [pipe for pipe in (output, errors) if pipe is not None]
        for pipe in pipes:
            pipe.close_write_end()
        timed_out = False
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            timed_out = True
            kill_group(process.pid)
            await process.wait()
        except BaseException:
            kill_group(process.pid)
            await process.wait()
            raise
        if not keep_background:
            kill_group(process.pid)
        for pipe in pipes:
            await pipe.drain(_DRAIN_BACKGROUND if keep_background else _DRAIN)
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        return Ended(code, output.text("stdout") if output else b"", errors.text("stderr"), timed_out)


def kill_group(pid: int) -> None:
    """Kill the processes of a group, if there are any."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class _Capture(asyncio.Protocol):
    """Keeps the first bytes of a pipe and throws the rest away, for as long as somebody writes to it."""

    def __init__(self, write_end: int) -> None:
        self.write_end: int = write_end
        self._data = bytearray()
        self._cut = False
        self._ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        room = OUTPUT_BYTES - len(self._data)
        self._data += data[:room]
        self._cut = self._cut or len(data) > room

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()

    def close_write_end(self) -> None:
        """Our copy of the end that the program writes to."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    async def drain(self, seconds: float) -> None:
        """Wait until nobody can write to the pipe any more, or until the time is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def text(self, name: str) -> bytes:
        """What was kept. A cut is visible."""
        return bytes(self._data) + (f"\n[{name} was cut after {OUTPUT_BYTES} bytes]".encode() if self._cut else b"")


@asynccontextmanager
async def _captured(keep_open: bool) -> AsyncIterator[_Capture]:
    """A pipe for the output of a program. It stays open for processes in the background, so that they can write on."""
    read_end, write_end = os.pipe()
    pipe = _Capture(write_end)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: pipe, os.fdopen(read_end, "rb", 0))
    try:
        yield pipe
    except BaseException:
        transport.close()
        raise
    else:
        if not keep_open:
            transport.close()
    finally:
        pipe.close_write_end()
