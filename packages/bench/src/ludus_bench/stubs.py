"""Stub model servers in their own processes: start them, read their statistics, end them."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import orjson

from ludus.runtime.running import FILES_IN_RESERVE, raise_file_limit

#: Connections to one stub process.
MOST_CONNECTIONS = 16_384

#: Connections to one port. A client has about 28,000 ephemeral ports for each server port, and Linux searches half of
#: them first: beyond 14,000 connections to one port, each new one costs milliseconds.
MOST_TO_A_PORT = 4096

_PROGRAM = "import sys; sys.path[:] = {path}; from ludus_bench.{module} import main; main()"
_END_SECONDS = 5.0


def program(module: str, *words: str) -> list[str]:
    """The command that runs a module of this room. It imports Ludus from the same place as this process."""
    return [sys.executable, "-P", "-c", _PROGRAM.format(path=repr(sys.path), module=module), *words]


def stubs_needed(in_flight: int) -> int:
    """The number of stubs for so many connections within the limit on open files."""
    files = raise_file_limit()
    most = min(MOST_CONNECTIONS, files - FILES_IN_RESERVE) if files > 0 else MOST_CONNECTIONS  # -1 is no limit
    return -(-in_flight // max(1, most))


@contextmanager
def stub_servers(count: int, in_flight: int, delay: str, turns: int) -> Iterator[list[list[int]]]:
    """Run stub servers and yield the ports of each. They end when the block does, or with this process."""
    ports = -(-in_flight // (count * MOST_TO_A_PORT))
    with ExitStack() as stack:
        yield [stack.enter_context(_stub(ports, delay, turns)) for _ in range(count)]


def stub_stats(stubs: list[list[int]]) -> dict[str, float]:
    """The sum of the stubs' statistics, and `busiest_cpu_s`: the largest CPU time of a stub."""
    stats = [_stats(ports[0]) for ports in stubs]
    total: dict[str, float] = {key: sum(stub[key] for stub in stats) for key in stats[0]}
    return {**total, "busiest_cpu_s": max(stub["cpu_s"] for stub in stats)}


def _stats(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/stats")
        stats: dict[str, Any] = orjson.loads(connection.getresponse().read())
    finally:
        connection.close()
    return stats


@contextmanager
def _stub(ports: int, delay: str, turns: int) -> Iterator[list[int]]:
    words = ["--ports", str(ports), "--delay", delay, "--turns", str(turns), "--end-with-stdin"]
    process = subprocess.Popen(program("stub_server", *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        if not ready:
            raise RuntimeError(f"a stub model server ended with exit code {process.wait()} before it listened")
        yield orjson.loads(ready)["ports"]
    finally:
        process.stdin.close()
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
