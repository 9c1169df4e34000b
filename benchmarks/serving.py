"""The cost of the servers: against a bare application, against no server, and over many sessions.

python benchmarks/serving.py tool_calls | large_response | run | sessions | many_sessions | memory
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import uvloop
from measure import run_json, stub_server

HERE = Path(__file__).parent
COUNTER = "example_session_state_mgmt"
ROW = {"responses_create_params": {"input": "Count."}, "initial_count": 0, "expected_count": 1}


class Process:
    """A server in its own process, with its CPU time and memory."""

    def __init__(self, words: list[str]) -> None:
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        self._popen = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment)
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline().strip()
        self.process = psutil.Process(self._popen.pid)
        self.urls = (
            {each["name"]: each["url"] for each in json.loads(line)["servers"]} if line[:1] == "{" else {"": line}
        )

    @property
    def cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @property
    def memory(self) -> int:
        return int(self.process.memory_info().rss)

    def stop(self) -> None:
        self._popen.terminate()
        self._popen.wait(30)


@contextmanager
def ludus(*words: str) -> Iterator[Process]:
    process = Process(["-m", "ludus", "serve", *words, "--json", "--head-port", "0"])
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def bare() -> Iterator[Process]:
    process = Process([str(HERE / "bare_server.py")])
    try:
        yield process
    finally:
        process.stop()


class Caller(asyncio.Protocol):
    """A keep-alive connection that sends bytes and waits for a reply, with minimal overhead."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if found and self._answer is not None:
            lower = head.lower()
            start = lower.index(b"content-length:") + 15
            length = int(lower[start:].split(b"\r\n", 1)[0])
            if len(body) >= length:
                self._got = b""
                self._answer.set_result(head + found + body)

    async def call(self, data: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)  # type: ignore[attr-defined]
        return await self._answer


async def connect(url: str) -> Caller:
    parts = urlsplit(url)
    _, caller = await asyncio.get_running_loop().create_connection(Caller, parts.hostname, parts.port)
    return caller


def request(path: str, body: bytes, session: str = "") -> bytes:
    headers = "host: localhost\r\ncontent-type: application/json\r\n"
    headers += f"x-ludus-session: {session}\r\n" if session else ""
    return f"POST {path} HTTP/1.1\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


async def seeded(caller: Caller) -> str:
    reply = await caller.call(request("/seed_session", json.dumps(ROW).encode()))
    return reply.split(b"x-ludus-session: ", 1)[1].split(b"\r\n", 1)[0].decode()


async def _rate(server: Process, url: str, path: str, body: bytes, count: int, at_once: int, sessions: bool) -> dict:
    callers = [await connect(url) for _ in range(at_once)]
    names = [await seeded(caller) if sessions else "" for caller in callers]
    for caller, name in zip(callers, names, strict=True):
        assert b" 200 " in (await caller.call(request(path, body, name)))[:40]

    async def work(caller: Caller, name: str) -> None:
        data = request(path, body, name)
        for _ in range(count // at_once):
            await caller.call(data)

    cpu, began = server.cpu, time.perf_counter()
    await asyncio.gather(*(work(caller, name) for caller, name in zip(callers, names, strict=True)))
    wall = time.perf_counter() - began
    for caller in callers:
        caller.transport.close()
    return {"per_second": count / wall, "cpu_us": (server.cpu - cpu) / count * 1e6}


def compared(ours: Process, url: str, path: str, body: bytes, count: int, at_once: int, sessions: bool) -> dict:
    """Alternate five runs of each server and compare the best."""
    with bare() as other:
        mine, theirs = [], []
        for _ in range(5):
            mine.append(asyncio.run(_rate(ours, url, path, body, count, at_once, sessions)))
            theirs.append(asyncio.run(_rate(other, other.urls[""], path, body, count, at_once, False)))
    best, floor = max(each["per_second"] for each in mine), max(each["per_second"] for each in theirs)
    costs = min(each["cpu_us"] for each in mine), min(each["cpu_us"] for each in theirs)
    return {"ours": best, "bare": floor, "share": best / floor, "cpu_share": costs[1] / costs[0], "cpu_us": costs}


def tool_calls() -> dict:
    """Small tool calls per second, 32 in flight, against a bare application that returns the same bytes."""
    with ludus(COUNTER, "--resources-only") as server:
        return compared(server, server.urls[COUNTER], "/increment_counter", b'{"count":1}', 8000, 32, True)


def large_response() -> dict:
    """Answers of 1.4 MB per second through the model server, against orjson in a bare application."""
    with ludus(COUNTER, "--model", "scripted:large_response:model", "--tokens") as server:
        url, body = server.urls["policy_model"], b'{"input":"x"}'
        return compared(server, url, "/v1/responses", body, 120, 4, False)


def run() -> dict:
    """CPU of a rollout with agent, model and resources on three servers, against one process."""
    count, environment, here, apart = 1000, str(HERE / "bench_env"), 1e9, 1e9
    product = [sys.executable, str(HERE / "product.py"), "--rollouts", str(count)]
    with ExitStack() as stack:
        stub = stack.enter_context(stub_server(turns=1))
        resources = stack.enter_context(ludus(environment, "--resources-only"))
        model = stack.enter_context(ludus(COUNTER, "--model", f"{stub}/v1#stub"))
        where = ["--resources", resources.urls["bench_env"], "--model", f"remote:{model.urls['policy_model']}"]
        agent = stack.enter_context(ludus(environment, *where))
        servers = [resources, model, agent]
        for _ in range(6):
            here = min(here, run_json([*product, "--url", stub])["cpu_s"])
            before = sum(server.cpu for server in servers)
            driver = run_json([*product, "--agent", agent.urls["bench_env_simple_agent"]])
            apart = min(apart, driver["cpu_s"] + sum(server.cpu for server in servers) - before)
    return {"here_ms": here / count * 1e3, "apart_ms": apart / count * 1e3, "ratio": apart / here}


async def _steady(url: str, sessions: int, seconds: int) -> dict:
    callers = [await connect(url) for _ in range(sessions)]
    names = [await seeded(caller) for caller in callers]
    times: list[float] = []
    errors = 0

    async def live(index: int, caller: Caller, name: str) -> None:
        nonlocal errors
        data = request("/increment_counter", b'{"count":1}', name)
        await asyncio.sleep(index / sessions)
        start = time.perf_counter()
        for turn in range(seconds):
            await asyncio.sleep(max(0.0, start + turn - time.perf_counter()))
            began = time.perf_counter()
            reply = await caller.call(data)
            times.append(time.perf_counter() - began)
            errors += b" 200 " not in reply[:40]

    await asyncio.gather(*(live(index, *each) for index, each in enumerate(zip(callers, names, strict=True))))
    times.sort()
    return {
        "errors": errors,
        "calls": len(times),
        "p50": statistics.median(times),
        "p99": times[len(times) * 99 // 100],
    }


def sessions() -> dict:
    """2,048 open sessions with one call per second each, on a server with one core."""
    with ludus(COUNTER, "--resources-only") as server:
        cores = sorted(os.sched_getaffinity(0))
        server.process.cpu_affinity(cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
        return asyncio.run(_steady(server.urls[COUNTER], 2048, 10))


def many_sessions() -> dict:
    """8,192 open sessions with one call per second each, on a server with two workers."""
    with ludus(COUNTER, "--resources-only", "--workers", "2") as server:
        return uvloop.run(_steady(server.urls[COUNTER], 8192, 10))  # the caller shares the machine: it costs little so


async def _churn(url: str, count: int) -> None:
    async def work() -> None:
        caller = await connect(url)
        for _ in range(count // 16):
            name = await seeded(caller)
            await caller.call(request("/increment_counter", b'{"count":1}', name))
            await caller.call(request("/close_session", b"{}", name))
        caller.transport.close()

    await asyncio.gather(*(work() for _ in range(16)))


def memory() -> dict:
    """Memory growth of a server over 100,000 opened and closed sessions."""
    with ludus(COUNTER, "--resources-only") as server:
        url = server.urls[COUNTER]
        asyncio.run(_churn(url, 4000))
        before = server.memory
        asyncio.run(_churn(url, 100_000))
        return {"growth_bytes": server.memory - before}


CASES = {case.__name__: case for case in (tool_calls, large_response, run, sessions, many_sessions, memory)}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]]()))
