"""Ends what a hosted server started. Daemons leave its process group, so each process carries a mark."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

#: The variable with which a server's process and all that it starts are marked.
MARK = "LUDUS_SERVER_FOLDER"
#: The folders of the servers that this process has started and not stopped.
FOLDERS: set[Path] = set()


def kill_offspring(folder: Path) -> None:
    """Kill all other processes with the mark of a server, whose folder is its own. Without `/proc`, none is found."""
    for _ in range(3):  # a process may start another one meanwhile
        found = list(marked(folder))
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return


def marked(folder: Path) -> Iterator[int]:
    """The other processes with the mark of a server."""
    mark = f"{MARK}={folder}".encode()
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    yield int(name)
