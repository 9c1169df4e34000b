"""One program that runs: its pipes, its output so far, and how it ended."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from ludus.sandbox.inside.relay import Relay, memory_file


class Running:
    """One program: its text, its pipes, its output so far, and how it ended.

    Its text and its output lie in files in memory, never in objects of this process: later programs are forks of it.
    """

    def __init__(self, request: dict[str, Any], size: int, relay: Relay) -> None:
        self.request = request
        self.relay = relay
        self.size: int = request["output"]  # bytes to keep at most
        self.length = [0, 0]  # bytes printed so far
        self.cut, self.drained = False, 0
        self.pid, self.status = 0, 0
        self.stopped: str | None = None
        length = request["start"] + request["source"]
        self.text = relay.receive(length)
        stdin = relay.receive(size - length) if size > length else os.open(os.devnull, os.O_RDONLY)
        out, err = os.pipe(), os.pipe()
        self.readers, self.output = [out[0], err[0]], [memory_file(), memory_file()]
        self.child_ends = [stdin, out[1], err[1]]

    def parts(self) -> tuple[dict[str, Any], bytes]:
        """In the child: how to start the program, and its source."""
        with os.fdopen(self.text, "rb") as file:
            return json.loads(file.read(self.request["start"])), file.read()

    def close_child_ends(self) -> None:
        """In the parent: close what only the program uses."""
        for fd in (self.text, *self.child_ends):
            os.close(fd)

    def take(self, stream: int, fd: int) -> bool:
        """Read from a pipe once. Returns whether there may be more."""
        try:
            length = self.relay.read(fd)
        except BlockingIOError:
            return False
        before = self.length[stream]
        self.length[stream] += length
        self.cut = self.cut or self.length[stream] > self.size
        if self.request["keep_last"]:
            self._write_around(stream, before, length)
        else:
            taken = max(min(length, self.size - before), 0)
            self.relay.write(self.output[stream], taken)
            self.drained += length - taken
        return length > 0

    def _write_around(self, stream: int, before: int, length: int) -> None:
        """Write to a file whose end continues at its beginning."""
        start = max(length - self.size, 0)
        while start < length:
            place = (before + start) % self.size
            taken = min(length - start, self.size - place)
            os.lseek(self.output[stream], place, os.SEEK_SET)
            self.relay.write(self.output[stream], taken, start)
            start += taken

    def printed(self, stream: int) -> int:
        """How many bytes of output are kept."""
        return min(self.length[stream], self.size)

    def first(self, stream: int) -> int:
        """Where in its file the kept output begins."""
        length = self.length[stream]
        return length % self.size if self.request["keep_last"] and length > self.size else 0

    def result(self, usage: Any) -> dict[str, Any]:
        """How the program ended, for the host."""
        status, stopped = self.status, self.stopped
        return {
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) and not stopped else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) and not stopped else None,
            "timed_out": stopped == "timed_out" or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU),
            "out_of_memory": stopped == "out_of_memory",
            "limit": stopped if stopped in ("files", "output", "stopped") else None,
            "output_cut": self.cut,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "stdout": self.printed(0),
        }
