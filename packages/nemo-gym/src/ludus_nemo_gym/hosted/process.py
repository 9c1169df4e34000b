"""A server in a child process: started, asked where it is stuck, and stopped.

The child gets what to host on its standard input, listens on a Unix socket in a folder that only this user can open,
and ends when its standard input ends: it never outlives this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from pathlib import Path
from time import monotonic

import orjson

from ludus.errors import UserError
from ludus.runtime.keys import without_keys, without_keys_and_paths
from ludus_nemo_gym.hosted.hosting import Hosting
from ludus_nemo_gym.hosted.offspring import FOLDERS, MARK, kill_offspring

log = logging.getLogger("ludus.nemo_gym")

#: How long a server may take to start: some load data or compile programs first.
START_SECONDS = 600.0
#: How often a start that takes long is reported.
PROGRESS_SECONDS = 20.0
#: How long a server may take to stop before it is killed.
STOP_SECONDS = 5.0
#: The lines of a server's output that are kept for messages.
KEPT_LINES = 40
#: The longest report of a child about its start.
_REPORT_BYTES = 1 << 20


class ServerProcess:
    """A child process with a server in it."""

    def __init__(self, process: Process, folder: Path, name: str) -> None:
        self._process, self._folder, self._name = process, folder, name
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reading = asyncio.create_task(self._read_output())
        FOLDERS.add(folder)

    @property
    def socket(self) -> Path:
        """The socket that the server listens on."""
        return self._folder / "socket"

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process.returncode is None

    async def ended_soon(self) -> bool:
        """Whether the process has ended, or ends within a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._process.wait()
                await asyncio.wait({self._reading}, timeout=0.5)
        return not self.running

    async def ended(self) -> None:
        """Wait for the end of the process."""
        await self._process.wait()

    def said(self) -> str:
        """The last line that the process wrote, as a sentence."""
        said = next((line for line in reversed(self._lines) if line.strip()), "")
        return without_keys_and_paths(f"Its last line: {said.strip()[:300]}") if said else "It has written nothing"

    def last_words(self) -> str:
        """How the process ended, and the last line that it wrote."""
        code = self._process.returncode
        how = "ended" if code is None else f"ended with status {code}" if code >= 0 else f"was killed by {_name(-code)}"
        said = next((line for line in reversed(self._lines) if line.strip()), "")
        return without_keys_and_paths(f"{how}: {said.strip()[:300]}") if said else how

    async def where(self) -> str:
        """`FILE:LINE` at which the main thread of the server is, or an empty text."""
        stack = self._folder / "stack"
        self._process.send_signal(signal.SIGUSR1)
        for _ in range(20):
            await asyncio.sleep(0.05)
            with contextlib.suppress(OSError):
                if text := stack.read_text("utf-8", "replace"):
                    return _innermost(text)
        return ""

    def kill(self) -> None:
        """End the process at once, with its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        kill_offspring(self._folder)

    async def stop(self) -> None:
        """Let the server shut down, kill it if it takes too long, and remove its folder."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            log.warning("the server %s did not stop within %g s and was killed", self._name, STOP_SECONDS)
        finally:
            self.kill()
            await self._process.wait()
            self._reading.cancel()
            FOLDERS.discard(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _read_output(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:  # a line of more than 64 KB: asyncio drops it
                continue
            if not line:
                return
            text = without_keys(line.decode("utf-8", "replace").rstrip())
            self._lines.append(text)
            log.info("[%s] %s", self._name, text)


async def start_process(hosting: Hosting) -> ServerProcess:
    """Start a server and wait until it listens. Raises a `UserError` if it cannot."""
    python = _interpreter(hosting)
    folder = Path(tempfile.mkdtemp(prefix="ludus-server-"))
    reports, report = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            "-P",
            "-m",
            "ludus_nemo_gym.hosted.child",
            str(folder),
            str(report),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            pass_fds=(report,),
            cwd=hosting.source.folder,
            env={**os.environ, MARK: str(folder)},
            start_new_session=True,
        )
    except BaseException:
        os.close(reports)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(report)
    server = ServerProcess(process, folder, hosting.instance)
    try:
        assert process.stdin is not None
        setup = hosting.packed()
        process.stdin.write(len(setup).to_bytes(8, "big") + setup)
        told = await _report(reports, server, hosting.instance)
    except BaseException:
        await server.stop()
        raise
    if told is None:
        await server.ended_soon()
        await server.stop()
        raise UserError(f"the server {hosting.instance} {server.last_words()} before it listened", _advice(hosting))
    if "error" in told:
        await server.stop()
        raise UserError(without_keys(told["error"]))
    return server


def _interpreter(hosting: Hosting) -> str:
    """The path of the Python that runs a server."""
    if not hosting.python:
        return sys.executable
    path = shutil.which(os.path.expanduser(hosting.python))
    if path is None:
        hint = "Name the Python of a virtual environment, such as FOLDER/.venv/bin/python"
        raise UserError(f"{hosting.set_with}python={hosting.python}: there is no such program", hint)
    return os.path.abspath(path)


def _advice(hosting: Hosting) -> str:
    if not hosting.python:
        return ""
    return f"{hosting.python} must have ludus-nemo-gym[servers]: see ludus doctor {hosting.source.folder}"


async def _report(descriptor: int, server: ServerProcess, name: str) -> dict[str, str] | None:
    """What the child says about its start; None if it ended without a word."""
    reader = asyncio.StreamReader(limit=_REPORT_BYTES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    reading = asyncio.create_task(reader.readline())
    ending = asyncio.create_task(server.ended())  # a process that it started may hold its end of the pipe
    began = monotonic()
    try:
        while not (await asyncio.wait({reading, ending}, timeout=PROGRESS_SECONDS, return_when="FIRST_COMPLETED"))[0]:
            seconds = monotonic() - began
            if seconds >= START_SECONDS:
                raise UserError(f"the server {name} did not start within {START_SECONDS:g} s", server.said())
            log.warning("the server %s has been starting for %.0f s. %s", name, seconds, server.said())
        await asyncio.wait({reading}, timeout=1.0)
        told = orjson.loads(reading.result()) if reading.done() and reading.result() else None
    except (ValueError, OSError):  # the server's code has written to a file that is not its own
        told = None
    finally:
        for task in (reading, ending):
            task.cancel()
        await asyncio.gather(reading, ending, return_exceptions=True)
        transport.close()
    return told if isinstance(told, dict) else None


def _innermost(stack: str) -> str:
    """The innermost line of a `faulthandler` stack that is not in Python's own library."""
    for line in stack.splitlines():
        words = line.strip().split('"')
        if len(words) == 3 and "/lib/python" not in words[1]:
            return f"{Path(words[1]).name}:{words[2].split(' ')[2].rstrip(',')}"
    return ""


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
