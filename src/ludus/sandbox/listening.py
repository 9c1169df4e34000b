"""A socket that listens inside the network of a sandbox, and belongs to us.

A sandbox has no network but its own loopback. A helper process enters that network, opens a listening socket there and
hands it to us. When we close it, nothing is left that a program could talk to.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from contextlib import suppress

from ludus.sandbox.libpython import library_variable, python_library
from ludus.sandbox.protocol import SandboxError
from ludus.sandbox.supervised_start import base_python

_SECONDS = 30.0

#: The helper: `setns` into the user namespace (unless we are root) and the network of a process, then listen there.
_HELPER = """
import ctypes, os, socket, sys
pid, fd, port = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
for name in ("net",) if os.geteuid() == 0 else ("user", "net"):
    space = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
    if libc.setns(space, 0) != 0:
        sys.exit(f"cannot enter the {name} namespace: {os.strerror(ctypes.get_errno())}")
listener = socket.create_server(("127.0.0.1", port))
socket.send_fds(socket.socket(fileno=fd), [b"x"], [listener.fileno()])
"""


def listen_inside(pid: int, port: int) -> socket.socket:
    """A socket that listens on a port of the loopback that a process sees. Blocks while the helper runs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [base_python(), "-S", "-E", "-c", _HELPER, str(pid), str(theirs.fileno()), str(port)]
        try:
            ended = subprocess.run(
                command,
                pass_fds=[theirs.fileno()],
                capture_output=True,
                env=library_variable(os.path.dirname(python_library() or "")),
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"cannot listen inside the sandbox: {error}") from error
        if ended.returncode != 0:
            words = " ".join(ended.stderr.decode(errors="replace").split())[-300:]
            raise SandboxError(f"cannot listen inside the sandbox: {words}")
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    os.set_inheritable(fds[0], False)
    return socket.socket(fileno=fds[0])


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what arrives until the end, as soon as it arrives, then end the other side's input."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
