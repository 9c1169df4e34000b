"""Control groups for sandboxes, where this machine lets us make them: memory, processes, and a fair share of the CPU.

Machines differ: version 1 or 2, all controllers or some, writable or not. Trying shows what works. A group
carries the process id of its owner in its name, so that the groups of a dead owner can be removed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from pathlib import Path
from typing import NamedTuple

from ludus.runtime.numbers import whole_number

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "ludus-sandbox"
_numbers = itertools.count()


class Controllers(NamedTuple):
    """The folders in which groups can be made: one for each controller (version 1), or the same (version 2)."""

    memory: Path | None = None
    pids: Path | None = None
    cpu: Path | None = None
    version: int = 1

    def describe(self) -> str:
        """The controllers that can be used, for people."""
        names = [name for name in ("memory", "pids", "cpu") if getattr(self, name) is not None]
        return f"cgroup v{self.version}: {', '.join(names)}" if names else "no writable cgroup"


class ControlGroup:
    """The control groups of one sandbox. Without any controller it does nothing."""

    def __init__(self, memory_bytes: int, processes: int) -> None:
        usable = controllers()
        name = f"{_PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"
        self._version = usable.version
        self.folders = list(dict.fromkeys(folder / name for folder in usable[:3] if folder is not None))
        self.memory = usable.memory / name if usable.memory is not None else None
        for folder in self.folders:
            folder.mkdir()
        if self.memory is not None:
            if usable.version == 1:
                _write(self.memory / "memory.limit_in_bytes", memory_bytes)
                _write(self.memory / "memory.memsw.limit_in_bytes", memory_bytes)
            else:
                _write(self.memory / "memory.max", memory_bytes)
                _write(self.memory / "memory.swap.max", 0)
                _write(self.memory / "memory.oom.group", 0)
        if usable.pids is not None:
            _write(usable.pids / name / "pids.max", processes)

    def add(self, pid: int) -> None:
        """Move a process into the groups. Its later children are in them too."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def out_of_memory_kills(self) -> int:
        """How many processes the kernel ended because the group was out of memory."""
        if self.memory is None:
            return 0
        name, key = ("memory.oom_control", "oom_kill") if self._version == 1 else ("memory.events", "oom_kill")
        try:
            for line in (self.memory / name).read_text().splitlines():
                if line.split()[0] == key:
                    return int(line.split()[1])
        except OSError:
            pass
        return 0

    def remove(self) -> None:
        """Remove the groups. Their processes must have ended."""
        for folder in self.folders:
            for _ in range(50):  # a process that has just ended may still be listed
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.001)


@functools.cache
def controllers() -> Controllers:
    """What this process can use, found by making groups and removing them."""
    parents: dict[str, Path] = {}
    version = 2 if (_ROOT / "cgroup.controllers").exists() else 1
    for name, marker in _markers(version):
        parent = _ROOT / _own(name, version) if version == 2 else _ROOT / name / _own(name, version)
        trial = parent / f"{_PREFIX}-trial-{os.getpid()}"
        try:
            trial.mkdir()
        except OSError:
            continue
        if os.access(trial / marker, os.W_OK) and os.access(trial / "cgroup.procs", os.W_OK):
            parents[name] = parent
        with contextlib.suppress(OSError):
            trial.rmdir()
    usable = Controllers(parents.get("memory"), parents.get("pids"), parents.get("cpu"), version)
    _remove_orphans(usable)
    return usable


def _markers(version: int) -> list[tuple[str, str]]:
    if version == 1:
        return [("memory", "memory.limit_in_bytes"), ("pids", "pids.max"), ("cpu", "cpu.shares")]
    return [("memory", "memory.max"), ("pids", "pids.max"), ("cpu", "cpu.weight")]


def _own(controller: str, version: int) -> str:
    """The group of this process, relative to the root of its hierarchy."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if (version == 2 and not names) or controller in names.split(","):
            return path.lstrip("/")
    return ""


def _remove_orphans(usable: Controllers) -> None:
    """Remove the groups whose owner is dead. Those of a living owner are left alone."""
    for parent in {folder for folder in usable[:3] if folder is not None}:
        for folder in parent.glob(f"{_PREFIX}-*-*-*"):
            pid, started = folder.name.removeprefix(f"{_PREFIX}-").split("-")[:2]
            number = whole_number(pid)
            if number is None or _started(number) != started:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot: a process id may be used again. Empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _write(path: Path, value: int) -> None:
    with contextlib.suppress(OSError):  # swap accounting may be off
        path.write_text(str(value))
