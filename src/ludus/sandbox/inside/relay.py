"""Bytes on their way between the host, files in memory and pipes, through one buffer that is wiped.

No other object of the supervisor ever holds them: a later program is a fork of it and must not find them.
"""

from __future__ import annotations

import os
import socket

_SIZE = 1 << 16


class Relay:
    """Copies bytes through one buffer."""

    def __init__(self, host: socket.socket) -> None:
        self.host = host
        self.bytes = bytearray(_SIZE)
        self.buffer = memoryview(self.bytes)

    def wipe(self) -> None:
        """Forget what went through."""
        self.buffer[:] = bytes(_SIZE)

    def receive(self, length: int) -> int:
        """The next bytes from the host as a file in memory. Raises `EOFError` if the host is gone."""
        fd = memory_file()
        while length:
            got = self.host.recv_into(self.buffer, min(length, _SIZE))
            if not got:
                raise EOFError
            self.write(fd, got)
            length -= got
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def send(self, fd: int, first: int = 0) -> None:
        """Send a file in memory to the host, from its byte `first` around to the one before it, and close it."""
        for start, size in ((first, os.fstat(fd).st_size - first), (0, first)):
            os.lseek(fd, start, os.SEEK_SET)
            while size:
                length = min(self.read(fd), size)
                self.host.sendall(self.buffer[:length])
                size -= length
        os.close(fd)

    def read(self, fd: int) -> int:
        """Fill the buffer from a file or a pipe. Returns how many bytes came, 0 at the end."""
        return os.readv(fd, [self.buffer])

    def write(self, fd: int, length: int, start: int = 0) -> None:
        """Write bytes of the buffer to a file."""
        rest = self.buffer[start : start + length]
        while rest:
            rest = rest[os.write(fd, rest) :]

    def parent_of(self, pid: int) -> int:
        """The parent of a process. `/proc/PID/stat` holds a name that the process chose, which stays in the buffer."""
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            length = self.read(fd)
        finally:
            os.close(fd)
        start = self.bytes.rfind(b")", 0, length) + 4  # after the name and the state
        return int(self.bytes[start : start + 11].split()[0])


def memory_file() -> int:
    """A new file in memory."""
    return os.memfd_create("file", os.MFD_CLOEXEC)
