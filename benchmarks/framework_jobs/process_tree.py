"""CPU, memory and number of all processes of a job, measured from outside. Linux only.

The measuring process adopts orphans (`PR_SET_CHILD_SUBREAPER`), so every process that a job ever started ends as a
child of a process that waits for it: `wait4` gives the CPU of the whole tree exactly, also after a kill.
"""

import ctypes
import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat that follow the name; [1] is the parent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descendants(ignored: set[int]) -> list[int]:
    """All processes below this one, without `ignored` and what is below them."""
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                children[int(_stat(int(entry))[1])].append(int(entry))
    below, waiting = [], [pid for pid in children[os.getpid()] if pid not in ignored]
    while waiting:
        pid = waiting.pop()
        below.append(pid)
        waiting += children[pid]
    return below


def cpu_s(pids: list[int]) -> float:
    """CPU of these processes and of their children that have ended."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += sum(int(ticks) for ticks in _stat(pid)[11:15])
    return total / _TICKS


def memory_mb(pids: list[int]) -> float:
    """Memory of these processes together; what several share counts once."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def end_all(ignored: set[int]) -> float:
    """Kill what is left of a job, wait for it, and return its CPU seconds."""
    used = 0.0
    while pids := descendants(ignored):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                _, _, usage = os.wait4(pid, 0)
                used += usage.ru_utime + usage.ru_stime
        time.sleep(0.02)
    return used
