"""Stub model servers in processes of their own: started, asked what they did, and ended."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import orjson

from ludus.runtime.running import FILES_IN_RESERVE, raise_file_limit

#: Connections to one stub. Each stub has a port of its own, and a client has some 28,000 ports for each of them.
MOST_CONNECTIONS = 16_384

_PROGRAM = "import sys; sys.path[:] = {path}; from ludus.bench.{module} import main; main()"
_END_SECONDS = 5.0


def program(module: str, *words: str) -> list[str]:
    """The command of a program of this room. It imports Ludus from where this process does."""
    return [sys.executable, "-P", "-c", _PROGRAM.format(path=repr(sys.path), module=module), *words]


def stubs_needed(in_flight: int) -> int:
    """How many stubs hold so many connections within the limit on open files."""
    files = raise_file_limit()
    most = min(MOST_CONNECTIONS, files - FILES_IN_RESERVE) if files > 0 else MOST_CONNECTIONS  # -1 is no limit
    return -(-in_flight // max(1, most))


@contextmanager
def stub_servers(count: int, delay: str, turns: int) -> Iterator[list[int]]:
    """Run stub servers and yield their ports. They end when the block does, or with this process."""
    with ExitStack() as stack:
        yield [stack.enter_context(_stub(delay, turns)) for _ in range(count)]


def stub_stats(ports: list[int]) -> dict[str, float]:
    """What the stubs did, added up, and `busiest_cpu_s`: the CPU time of the one that used most."""
    found = [_stats(port) for port in ports]
    total: dict[str, float] = {key: sum(each[key] for each in found) for key in found[0]}
    return {**total, "busiest_cpu_s": max(each["cpu_s"] for each in found)}


def _stats(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/stats")
        stats: dict[str, Any] = orjson.loads(connection.getresponse().read())
    finally:
        connection.close()
    return stats


@contextmanager
def _stub(delay: str, turns: int) -> Iterator[int]:
    words = ["--delay", delay, "--turns", str(turns), "--end-with-stdin"]
    process = subprocess.Popen(program("stub_server", *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        if not ready:
            raise RuntimeError(f"a stub model server ended with exit code {process.wait()} before it listened")
        yield orjson.loads(ready)["port"]
    finally:
        process.stdin.close()
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
