"""One run of a framework's job beside a stub server in a process of its own, measured from outside."""

import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job import TOOL_CALLS
from process_tree import cpu_s, descendants, end_all, memory_mb

HERE = Path(__file__).parent
START_LIMIT_S = 600.0
LIMIT_RATIO = 10
POLL_S, SAMPLE_EVERY_S = 0.05, 1.0


class Stub:
    """A stub server's process, its URL, and the time of the first request."""

    def __init__(self, flags: dict[str, float]) -> None:
        words = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, str(HERE / "stub.py"), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._lines = self.process.stdout
        self.url = self._lines.readline().strip()
        self.first: float | None = None
        threading.Thread(target=self._wait_for_first, daemon=True).start()

    def _wait_for_first(self) -> None:
        line = self._lines.readline().split()
        self.first = float(line[1]) if line else None

    def get(self, path: str) -> dict[str, Any]:
        """What the stub has counted."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
            counted: dict[str, Any] = json.load(answer)
        return counted


@contextmanager
def stub(**flags: float) -> Iterator[Stub]:
    """Run the stub server."""
    server = Stub(flags)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


@dataclass(frozen=True)
class Job:
    """What one framework plays."""

    name: str
    python: Path
    job: str
    rollouts: int
    in_flight: int
    output: Path

    def start(self, url: str, *more: str) -> "subprocess.Popen[bytes]":
        """Start the job; its report is the last line of its standard output."""
        words = [str(self.python), str(HERE / f"{self.name}_job.py"), "--url", f"{url}/v1", "--job", self.job]
        words += ["--rollouts", str(self.rollouts), "--concurrency", str(self.in_flight), "--output", str(self.output)]
        environment = {**os.environ, "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # every run would compile the framework again
        environment.pop("PYTHONPATH", None)
        with self._said("stdout").open("wb") as printed, self._said("stderr").open("wb") as errors:
            return subprocess.Popen(
                [*words, *more], stdout=printed, stderr=errors, start_new_session=True, env=environment
            )

    def _said(self, stream: str) -> Path:
        return self.output.with_name(f"{self.output.name}.{stream}")

    def report(self, status: int) -> dict[str, Any]:
        """What the job printed at its end, or the last line of its errors."""
        lines = self._said("stdout").read_text(errors="replace").strip().splitlines()
        if status == 0 and lines:
            counts: dict[str, Any] = json.loads(lines[-1])
            return {"end": "finished", **counts}
        said = self._said("stderr").read_text(errors="replace").strip().splitlines()[-1:]
        return {"end": ": ".join([f"exit status {status}", *said])[:300]}


class Watched:
    """The processes of one job, sampled from outside."""

    def __init__(self, job: Job, server: Stub, *more: str) -> None:
        self.began, self._ignored = time.time(), {server.process.pid}
        self._job, self._server = job, server
        self._process = job.start(server.url, *more)
        self._sampled = 0.0
        self.first: float | None = None
        self.first_cpu_s = self.cpu_s = self.memory_mb = 0.0
        self.processes = 0

    def sample(self) -> None:
        """Look for the first request and, every second, for CPU and memory."""
        if self.first is None and self._server.first is not None:
            self.first = max(self.began, self._server.first)
            self.first_cpu_s = self.cpu_s = cpu_s(descendants(self._ignored))
        if time.time() - self._sampled > SAMPLE_EVERY_S:
            pids = descendants(self._ignored)
            self.memory_mb = max(self.memory_mb, memory_mb(pids))
            self.processes = max(self.processes, len(pids))
            self._sampled, self.cpu_s = time.time(), cpu_s(pids)

    def ended(self) -> dict[str, Any] | None:
        """The job's report, if its process has ended."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if not pid:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._own_cpu_s = usage.ru_utime + usage.ru_stime
        return self._job.report(self._process.returncode)

    def end(self) -> dict[str, Any]:
        """End what still runs and return the figures of the whole tree."""
        running = self._process.returncode is None
        used_s = end_all(self._ignored) + (0.0 if running else self._own_cpu_s)
        self._process.returncode = self._process.returncode or 0
        return {
            "start_s": (self.first or time.time()) - self.began,
            "start_cpu_s": self.first_cpu_s,
            "cpu_s": used_s - self.first_cpu_s,
            "memory_mb": self.memory_mb,
            "processes": self.processes,
            "whole_s": time.time() - self.began,
        }


def watch(job: Job, server: Stub, limit_s: float, enough: Callable[[], bool], *more: str) -> dict[str, Any]:
    """Run a job to its end, or to a limit, or until `enough`; then end all of its processes.

    The limit is `limit_s` seconds of CPU after the first request, or LIMIT_RATIO times as long by the clock.
    """
    run, end = Watched(job, server, *more), None
    while end is None:
        time.sleep(POLL_S)
        run.sample()
        if (end := run.ended()) is not None:
            break
        if run.first is None and time.time() - run.began > START_LIMIT_S:
            end = {"end": f"no model call within {START_LIMIT_S:.0f} s"}
        elif run.first is not None and run.cpu_s - run.first_cpu_s > limit_s:
            end = {"end": f"stopped after {limit_s:.0f} s of CPU"}
        elif run.first is not None and time.time() - run.first > LIMIT_RATIO * limit_s:
            end = {"end": f"stopped after {LIMIT_RATIO * limit_s:.0f} s"}
        elif enough():
            end = {"end": "killed"}
    return {**end, **run.end()}


def measured(job: Job, delay_s: float, limit_s: float) -> dict[str, Any]:
    """The figures of one run. What the job did not finish within its limit is left out of them."""
    with stub(delay=delay_s, tool_calls=TOOL_CALLS[job.job]) as server:
        run = watch(job, server, limit_s, lambda: False)
        stats, times = server.get("/stats"), server.get("/times")["times"]
    figures = {**run, **stats, "rollouts": job.rollouts, "in_flight": job.in_flight, "delay_s": delay_s}
    if not times:
        return figures
    lasted_s = max(last for _, _, last in times) - min(first for first, _, _ in times)
    late = overheads(times, job.in_flight)
    programs_s = run["start_cpu_s"] if job.job == "harness" else 0.0  # a program's start belongs to its rollout
    figures["cpu_ms"] = 1000 * (run["cpu_s"] + programs_s) / len(times)
    figures["per_s"] = len(times) / lasted_s if lasted_s else None
    figures["overhead_p50_ms"] = 1000 * statistics.median(late)
    figures["overhead_p99_ms"] = 1000 * sorted(late)[math.ceil(0.99 * len(late)) - 1]
    return figures


def overheads(times: list[list[float]], in_flight: int) -> list[float]:
    """The seconds of each rollout beyond those in which the stub held its requests.

    A rollout ends with its last answer. The first `in_flight` rollouts begin with the first request of the run, each
    later one when a place becomes free: at the end of an earlier rollout.
    """
    times = sorted(times)
    ends = sorted(last for _, _, last in times)
    begins = [times[0][0]] * in_flight + ends
    return [last - min(first, begin) - held for (first, held, last), begin in zip(times, begins, strict=False)]
