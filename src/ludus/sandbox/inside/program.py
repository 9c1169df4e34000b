"""One program that runs: its pipes, its output so far, and how it ended."""

from __future__ import annotations

import os
import signal
from typing import Any


class Program:
    """One program: its pipes, its output so far, and how it ended."""

    def __init__(self, request: dict[str, Any], body: bytes) -> None:
        self.request = request
        size = request.get("source", 0)
        self.source, stdin = body[:size], body[size:]
        self.limit = request["output"]
        self.output, self.cut, self.drained = [bytearray(), bytearray()], False, 0
        self.pid, self.status = 0, 0
        self.stopped: str | None = None
        out, err = os.pipe(), os.pipe()
        self.readers = [out[0], err[0]]
        self.child_ends = [file_of(stdin), out[1], err[1]]

    def close_child_ends(self) -> None:
        """In the parent: close what only the program uses."""
        for fd in self.child_ends:
            os.close(fd)

    def take(self, stream: int, fd: int) -> bool:
        """Read from a pipe once. Returns whether there may be more."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        kept = self.output[stream]
        room = self.limit - len(kept)
        kept += data[:room]
        if len(data) > room:
            self.cut = True
            self.drained += len(data) - room
        return bool(data)

    def result(self, usage: Any) -> dict[str, Any]:
        """How the program ended, for the host."""
        status, stopped = self.status, self.stopped
        return {
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) and not stopped else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) and not stopped else None,
            "timed_out": stopped == "timed_out" or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU),
            "out_of_memory": stopped == "out_of_memory" or (status != 0 and b"\nMemoryError" in self.output[1][-200:]),
            "limit": stopped if stopped in ("files", "output") else None,
            "output_cut": self.cut,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "stdout": len(self.output[0]),
        }


def file_of(data: bytes) -> int:
    """A file descriptor from which a program can read these bytes."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    fd = os.memfd_create("stdin")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
