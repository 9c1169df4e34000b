"""CPU, memory and run-queue wait of a process and its child processes.

The figures of child processes come from /proc. Without it (macOS), memory is the peak of this process alone, and the
time spent waiting for a core is unknown.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY = 0.1


class UsageMeter:
    """Measures this process and its children from `start` to `stop`. Run `sample` as a task in between."""

    def __init__(self) -> None:
        self.cpu_s = 0.0  # of this process
        self.children_cpu_s = 0.0
        self.memory_growth = 0
        self.cpu_share: float | None = None  # time on a core / (time on a core + time in the run queue)
        self.children_cpu_share: float | None = None

    def start(self) -> None:
        """Begin to measure. Earlier use of the children does not count."""
        children = _children(os.getpid())
        self._cpu, self._ended = time.process_time(), _ended_children_cpu()
        self._before = sum(_cpu_of(pid) for pid in children)
        self._memory = self._peak = _memory_of([os.getpid(), *children])
        self._own = _run_and_wait(os.getpid())
        self._others = {pid: _run_and_wait(pid) for pid in children}
        self._last_others = dict(self._others)  # last known values, also of ended children

    async def sample(self) -> None:
        """Sample memory and the children's run-queue wait until cancelled."""
        while True:
            await asyncio.sleep(_SAMPLE_EVERY)
            children = _children(os.getpid())
            self._peak = max(self._peak, _memory_of([os.getpid(), *children]))
            self._last_others |= {pid: _run_and_wait(pid) for pid in children if pid in self._others}

    def stop(self) -> None:
        """End. Call it after the children have ended: only then is their CPU time complete."""
        self.cpu_s = time.process_time() - self._cpu
        alive = sum(_cpu_of(pid) for pid in _children(os.getpid()))
        self.children_cpu_s = max(0.0, _ended_children_cpu() - self._ended + alive - self._before)
        self._peak = max(self._peak, _memory_of([os.getpid()]))
        self.memory_growth = self._peak - self._memory
        self.cpu_share = _share([(self._own, _run_and_wait(os.getpid()))])
        self.children_cpu_share = _share([(self._others[pid], self._last_others[pid]) for pid in self._others])


def available_memory() -> int | None:
    """Bytes that this machine can still hand out; None where that is unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _share(pairs: list[tuple[tuple[int, int], tuple[int, int]]]) -> float | None:
    """Time on a core / (time on a core + time in the run queue); None if the processes did not run."""
    ran = sum(after[0] - before[0] for before, after in pairs if after[0] >= before[0])
    waited = sum(after[1] - before[1] for before, after in pairs if after[0] >= before[0])
    return ran / (ran + waited) if ran > 0 else None


def _children(pid: int) -> list[int]:
    """All descendants of a process that are alive."""
    descendants: list[int] = []
    with suppress(OSError):
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                for child in map(int, listed.read_text().split()):
                    descendants += [child, *_children(child)]
    return descendants


def _ended_children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) * _TICK
    return 0.0


def _memory_of(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    if total:
        return total
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _run_and_wait(pid: int) -> tuple[int, int]:
    """Nanoseconds that a process's main thread ran, and that it waited for a core; zeros if it has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/schedstat").read_text().split()
        return int(fields[0]), int(fields[1])
    return 0, 0
