"""What a sandbox costs: `python benchmarks/sandboxes.py start|crowd|uses` prints a report as JSON."""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import rss_bytes

from ludus.sandbox import SandboxLimits, SandboxSpec
from ludus.sandbox import bubblewrap as provider_module
from ludus.sandbox.bubblewrap import BubblewrapProvider
from ludus.sandbox.pool import SandboxPool
from ludus.sandbox.stage import open_stage
from ludus.sandbox.supervised_start import base_python

PROGRAM = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
NUMBERS = b"1 2 3\n"
RUNS, ROUNDS = 60, 4


def cpu_s(*pids: int) -> float:
    """The CPU time of this process, of its children that ended, and of other processes with their children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = os.sysconf("SC_CLK_TCK")
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    others = sum(sum(map(int, stat[11:15])) / ticks for stat in stats)
    return sum(one.ru_utime + one.ru_stime for one in used) + others


def best(function: Callable[[], object]) -> float:
    """CPU seconds of one call, in the best of several rounds."""
    found = []
    for _ in range(ROUNDS):
        began = cpu_s()
        for _ in range(RUNS):
            function()
        found.append((cpu_s() - began) / RUNS)
    return min(found)


def cold(*command: str) -> None:
    """Start a program as the only one of a new sandbox."""
    fds: list[int] = []
    words = provider_module._command(SandboxSpec(), STAGE, None, fds, list(command))
    subprocess.run(words, pass_fds=fds, env={}, check=True, capture_output=True)
    for fd in fds:
        os.close(fd)


STAGE = open_stage()


async def start() -> dict[str, Any]:
    """One program: plain, in a new sandbox, in a warm one."""
    python = base_python()
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PROGRAM)
        file.flush()

        def plain(*command: str) -> Callable[[], object]:
            return lambda: subprocess.run(command, input=NUMBERS, env={}, check=True, capture_output=True)

        found = {
            "true": best(plain("/bin/true")),
            "cold_true": best(lambda: cold("/bin/true")),
            "python": best(plain(python, file.name)),
            "bare_python": best(plain(python, "-S", "-E", file.name)),
            "cold_python": best(lambda: cold(python, "-c", "pass")),
        }
    pool = SandboxPool(BubblewrapProvider(), warm=1)
    warm = []
    for _ in range(ROUNDS + 1):  # the first opens the sandbox
        pids = [one.pid for one in pool.provider._opened]  # type: ignore[attr-defined]
        began = cpu_s(*pids)
        for _ in range(RUNS):
            async with await pool.open(SandboxSpec()) as sandbox:
                result = await sandbox.python(PROGRAM, stdin=NUMBERS)
                assert result.stdout == b"6\n", result
        warm.append((cpu_s(*pids) - began) / RUNS if pids else 1.0)
    await pool.close()
    return {**found, "warm_python": min(warm)}


HOSTILE = {
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "memory bomb": "data = []\nwhile True: data.append(bytearray(1 << 20))",
    "output": "while True: print('x' * 100000)",
    "files": "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w').close()\n    n += 1",
}


async def crowd() -> dict[str, Any]:
    """64 sandboxes at once: the p99 of a short program, with none hostile and with one."""
    spec = SandboxSpec(limits=SandboxLimits(memory_mb=256, processes=32))
    pool = SandboxPool(BubblewrapProvider(), warm=0)
    sandboxes = [await pool.open(spec) for _ in range(64)]

    async def work(sandbox: Any, times: list[float]) -> None:
        for _ in range(10):
            began = time.perf_counter()
            result = await sandbox.python("print(sum(range(300_000)))", timeout=60)
            assert result.ok, result
            times.append(time.perf_counter() - began)

    async def p99(attack: str | None) -> float:
        times: list[float] = []
        hostile = asyncio.create_task(attacked(sandboxes[0], attack)) if attack else None
        await asyncio.gather(*(work(one, times) for one in sandboxes[1:]))
        if hostile is not None:
            hostile.cancel()
            await asyncio.gather(hostile, return_exceptions=True)
            await sandboxes[0].close()
            sandboxes[0] = await pool.open(spec)
        return statistics.quantiles(times, n=100)[98]

    async def attacked(sandbox: Any, attack: str) -> None:
        while True:
            await sandbox.python(attack, timeout=5)

    await p99(None)
    report: dict[str, Any] = {"calm_s": [], **{name: [] for name in HOSTILE}}
    for _ in range(2):
        report["calm_s"].append(await p99(None))
        for name, attack in HOSTILE.items():
            report[name].append(await p99(attack))
    await pool.close()
    report = {name: min(values) for name, values in report.items()}
    report["ratio"] = max(report[name] for name in HOSTILE) / report["calm_s"]
    return report


async def uses() -> dict[str, Any]:
    """10,000 uses: what is left, and how much memory grew after the first thousand."""
    pool = SandboxPool(BubblewrapProvider())
    spec = SandboxSpec()

    async def use(times: int) -> None:
        for _ in range(times):
            async with await pool.open(spec) as sandbox:
                await sandbox.python("open('x', 'w').write('x')")

    before = _left()
    await asyncio.gather(use(500), use(500))
    early = rss_bytes()
    await asyncio.gather(use(4500), use(4500))
    grown = rss_bytes() - early
    await pool.close()
    return {"growth_bytes": grown, "left": _left() - before}


def _left() -> int:
    """How many processes, mounts, folders and control groups of ours there are."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, check=False).stdout
    prefix = f"ludus-sandbox-{os.getpid()}-"
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith(prefix)]
    mounts = Path("/proc/self/mountinfo").read_text().count("\n")
    return len(children.split()) + len(groups) + mounts + len(os.listdir(tempfile.gettempdir()))


if __name__ == "__main__":
    case = {"start": start, "crowd": crowd, "uses": uses}[sys.argv[1]]
    print(json.dumps(asyncio.run(case())))
