"""Runs `ludus` commands in tests, each in a process of its own that is forked ready to run (`command_server.py`).

    done = forked.run([sys.executable, "-m", "ludus", "show", "run", "--json"], capture_output=True, text=True)
    process = forked.start([sys.executable, "-m", "ludus", "collect", "mcqa"], cwd=folder)

The commands of other packages are called by their entry points: `[sys.executable, "-c", "from gym import main;
main()"]`. Claims about the start itself (imports, encodings, closed streams, signals while it imports) use
`subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import marshal
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from command_server import HEADER, STATUS
from waiting import CEILING

#: How a command line of ours starts: by its module, or by an entry point.
START = [sys.executable, "-m", "ludus"]
_ENTRY_POINT = re.compile(r"from ([\w.]+) import (\w+); \2\(\)")


def run(
    command: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    capture_output: bool = False,
    text: bool = False,
    encoding: str | None = None,
    timeout: float | None = CEILING,
    check: bool = False,
) -> subprocess.CompletedProcess[Any]:
    """Run a `ludus` command to its end, as `subprocess.run` does: same words, same options, same result."""
    out, error = (_capture(stream, capture_output) for stream in (stdout, stderr))
    with out, error, _input(input, stdin) as stdin_file:
        with Running(command, cwd, env, stdin_file, out, error) as process:
            status = process.wait(timeout)
        texts = [_read(file, bool(text or encoding)) for file in (out, error)]
    done = subprocess.CompletedProcess(list(command), status, *texts)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def start(
    command: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stderr: IO[bytes] | None = None,
) -> Running:
    """Start a command, as `subprocess.Popen` does. What it writes is lost but for what it writes to `stderr`."""
    with open(os.devnull, "r+b") as nothing:
        return Running(command, cwd, env, nothing, nothing, nothing if stderr is None else stderr)


def _entry_point(command: Sequence[str]) -> str:
    """The function that a command line runs, as `module:function`."""
    if list(command[:3]) == START:
        return "ludus.__main__:main"
    named = _ENTRY_POINT.fullmatch(command[2]) if list(command[:2]) == [sys.executable, "-c"] else None
    assert named is not None, f"neither a ludus command nor one entry point: {command}"
    return f"{named[1]}:{named[2]}"


class Running:
    """A command that runs: its process id, and its exit code once it has ended."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path | str | None,
        env: Mapping[str, str] | None,
        *streams: IO[bytes],
    ) -> None:
        order = {
            "entry_point": _entry_point(command),
            "arguments": list(command[3:]),
            "cwd": str(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
        }
        data = marshal.dumps(order)
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server())
        numbers = [stream.fileno() for stream in streams]
        socket.send_fds(self._connection, [HEADER.pack(len(data))], numbers)
        self._connection.sendall(data)
        self.pid = self._receive()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def wait(self, timeout: float | None = CEILING) -> int:
        """Wait for the end of the command, and kill it if it does not end in time."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = self._receive()
            except TimeoutError:
                self.kill()
                raise
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code; None while the command runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def kill(self) -> None:
        """End the command with SIGKILL, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _receive(self) -> int:
        data = self._connection.recv(STATUS.size, socket.MSG_WAITALL)
        if len(data) < STATUS.size:
            raise RuntimeError("the server of commands has ended")
        (number,) = STATUS.unpack(data)
        return int(number)


#: A program that runs a command in the server, with its own streams, and passes signals on to it. It imports nothing
#: that Python has to read from a file.
_PROGRAM = """#!{python} -IS
import _socket as socket, marshal, os, signal, sys

order = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), "entry_point": {entry_point!r}}}
data = marshal.dumps(order)
connection = socket.socket(socket.AF_UNIX)
connection.connect({path!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
connection.sendmsg([len(data).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
connection.sendall(data)
pid = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "little")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "little", signed=True)
os._exit(status if status >= 0 else 128 - status)
"""


def write_program(path: Path, entry_point: str = "ludus.__main__:main") -> None:
    """Write a program that stands for `ludus`, or for another command, in shell scripts."""
    text = _PROGRAM.format(python=sys.executable, path=_server(), entry_point=entry_point)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@functools.cache
def _server() -> str:
    """The socket of this process's server, which is started with the first command."""
    folder = tempfile.TemporaryDirectory(prefix="ludus-")
    path = os.path.join(folder.name, "commands")
    watched, held = os.pipe()
    program = [sys.executable, os.path.join(os.path.dirname(__file__), "command_server.py"), path, str(watched)]
    process = subprocess.Popen(program, pass_fds=[watched], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(watched)

    def end() -> None:
        os.close(held)
        process.wait()
        folder.cleanup()

    atexit.register(end)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("the server of commands did not start")
    process.stdout.close()
    return path


def _capture(stream: int | None, capture_output: bool) -> IO[bytes]:
    """Where a command writes: a temporary file for what is read afterwards, or the caller's own file."""
    if capture_output or stream == subprocess.PIPE:
        return tempfile.TemporaryFile()
    if stream is None or stream == subprocess.DEVNULL:
        return open(os.devnull, "wb")
    return os.fdopen(os.dup(stream), "wb")


def _input(content: str | bytes | None, stdin: int | None) -> IO[bytes]:
    """What a command reads: a pipe with a text in it, the caller's own file, or nothing."""
    if content is None:
        return open(os.devnull, "rb") if stdin in (None, subprocess.DEVNULL) else os.fdopen(os.dup(stdin), "rb")
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 60_000, "a pipe holds no more"
    readable, writable = os.pipe()
    os.write(writable, data)
    os.close(writable)
    return os.fdopen(readable, "rb")


def _read(file: IO[bytes], text: bool) -> Any:
    """What was captured; None if it went elsewhere."""
    if not file.readable():
        return None
    file.seek(0)
    data = file.read()
    return data.decode("utf-8").replace("\r\n", "\n") if text else data
