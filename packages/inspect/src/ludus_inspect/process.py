"""The worker process: how it is started, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.runtime.keys import without_keys, without_keys_and_paths
from ludus_inspect.inside.ludus_inspect_worker.channel import Message, WorkerChannel
from ludus_inspect.problems import problem
from ludus_inspect.settings import InspectConfig

log = logging.getLogger(__name__)

_INSIDE = Path(__file__).parent / "inside"
_LENGTH = struct.Struct("!I")
#: How long a task may take to be made: some read a large dataset.
START_SECONDS = 600.0
_STOP_SECONDS = 10.0
_LINES = 200


def read_rows(config: InspectConfig) -> Iterator[dict[str, Any]]:
    """The samples of a task as rows, from a worker that ends with the last."""
    ours, theirs = socket.socketpair()
    with (
        contextlib.ExitStack() as stack,
        ours,
        tempfile.TemporaryFile() as written,
        subprocess.Popen(
            _command(config, theirs),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=written,
            start_new_session=True,
        ) as process,
    ):
        theirs.close()
        try:
            ours.settimeout(START_SECONDS)
            stream = stack.enter_context(ours.makefile("rb"))
            _send(ours, config.setup("rows"))
            last = False
            while not last:
                message = _receive(stream)
                if message is None:
                    raise _ended(config, written)
                if message["op"] == "problem":
                    raise problem(config, message)
                yield from message["rows"]
                last = bool(message.get("last"))
        except TimeoutError as error:
            raise UserError(f"{config.task.text} was not loaded within {START_SECONDS:g} s") from error
        finally:
            _kill(process.pid)


class InspectProcess:
    """A worker that plays samples."""

    def __init__(
        self, process: asyncio.subprocess.Process, channel: WorkerChannel, ours: socket.socket, name: str
    ) -> None:
        self.channel = channel
        self._socket = ours
        self._process, self._name = process, name
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reading = asyncio.create_task(self._read_output())
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, config: InspectConfig, answer: Callable[[Message], Awaitable[Any]], hear: Callable[[Message], None]
    ) -> InspectProcess:
        """Start a worker and wait until its task is made. Raises a `UserError` if it cannot be."""
        ours, theirs = socket.socketpair()
        process = await asyncio.create_subprocess_exec(
            *_command(config, theirs),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        worker = cls(process, WorkerChannel(*await asyncio.open_connection(sock=ours)), ours, config.task.text)
        try:
            worker.channel.note(**config.setup("play"))
            async with asyncio.timeout(START_SECONDS):
                told = await worker.channel.receive()
            if told is None:
                await process.wait()
                raise UserError(f"the worker of {config.task.text} {worker.last_words()}", _advice(config))
            if told["op"] == "problem":
                raise problem(config, told)
        except TimeoutError as error:
            await worker.stop()
            raise UserError(f"{config.task.text} was not loaded within {START_SECONDS:g} s") from error
        except BaseException:
            await worker.stop()
            raise
        worker._serving = asyncio.create_task(worker.channel.serve(answer, hear))
        return worker

    @property
    def ended(self) -> asyncio.Task[None]:
        """Done when the worker has ended."""
        assert self._serving is not None
        return self._serving

    def last_words(self) -> str:
        """How the process ended, and the last line that it wrote."""
        code = self._process.returncode
        how = "ended" if code is None else f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"
        said = next((line for line in reversed(self._lines) if line.strip()), "")
        return without_keys_and_paths(f"{how}: {said.strip()[:300]}") if said else how

    async def stop(self) -> None:
        """End the process."""
        await self.channel.close()
        self._socket.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        _kill(self._process.pid)
        await self._process.wait()
        await asyncio.to_thread(_remove_folders, self._process.pid)
        if self._serving is not None:
            self._serving.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_output(self) -> None:
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # a line of more than 64 KB: asyncio drops it
                continue
            if not line:
                return
            text = without_keys(line.decode("utf-8", "replace").rstrip())
            self._lines.append(text)
            log.info("[%s] %s", self._name, text)


def _command(config: InspectConfig, theirs: socket.socket) -> list[str]:
    python = sys.executable
    if config.python:
        found = shutil.which(os.path.expanduser(config.python))
        if found is None:
            hint = "Name the Python of a virtual environment, such as FOLDER/.venv/bin/python"
            raise UserError(f"--set resources.python={config.python}: there is no such program", hint)
        python = os.path.abspath(found)
    return [python, str(_INSIDE), str(theirs.fileno())]


def _ended(config: InspectConfig, written: Any) -> UserError:
    written.seek(0)
    lines = written.read().decode("utf-8", "replace").strip().splitlines()
    said = f": {lines[-1].strip()[:300]}" if lines else ""
    return UserError(without_keys(f"the worker of {config.task.text} ended before it had read the task{said}"))


def _advice(config: InspectConfig) -> str:
    return f"See: ludus doctor inspect:{config.task.text}"


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _remove_folders(process: int) -> None:
    """Remove what a process left that was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"ludus-inspect-{process}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _send(ours: socket.socket, message: Message) -> None:
    content = json.dumps(message).encode()
    ours.sendall(_LENGTH.pack(len(content)) + content)


def _receive(stream: Any) -> Message | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    content = stream.read(size)
    return json.loads(content) if len(content) == size else None
