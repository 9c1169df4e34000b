"""Runs `ludus` commands in tests, each in a process of its own that is forked ready to run (`command_server.py`).

    done = forked.run([sys.executable, "-m", "ludus", "show", "run", "--json"], capture_output=True, text=True)

Claims about the start itself (imports, encodings, closed streams, signals while it imports) use `subprocess`.
"""

from __future__ import annotations

import atexit
import functools
import marshal
import os
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

#: How a command line of ours starts.
START = [sys.executable, "-m", "ludus"]


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
    arguments = list(command)
    assert arguments[:3] == START, f"not a ludus command: {arguments}"
    out, error = (_capture(stream, capture_output) for stream in (stdout, stderr))
    with out, error, _input(input, stdin) as stdin_file:
        with Running(arguments[3:], cwd, env, stdin_file, out, error) as process:
            process.wait(timeout)
        texts = [_read(file, bool(text or encoding)) for file in (out, error)]
    done = subprocess.CompletedProcess(arguments, process.returncode, *texts)
    if check:
        assert done.returncode == 0, done.stderr
    return done


class Running:
    """A command that runs: its process id, and its exit code once it has ended."""

    def __init__(
        self,
        arguments: list[str],
        cwd: Path | str | None,
        env: Mapping[str, str] | None,
        *streams: IO[bytes],
    ) -> None:
        order = {
            "arguments": arguments,
            "cwd": str(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
        }
        data = marshal.dumps(order)
        self.returncode = -1
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

    def wait(self, timeout: float | None) -> int:
        """Wait for the end of the command, and kill it if it does not end in time."""
        self._connection.settimeout(timeout)
        try:
            self.returncode = self._receive()
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        return self.returncode

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

data = marshal.dumps({{"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}})
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


def write_program(path: Path) -> None:
    """Write a program that stands for `ludus` in shell scripts."""
    path.write_text(_PROGRAM.format(python=sys.executable, path=_server()), encoding="utf-8")
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
