"""Runs one command and ends everything that it started: upload this file into a sandbox and run it there.

    python3 process_supervisor.py --timeout S --receipt FILE [--cleanup-timeout S] [--stop-file FILE] -- COMMAND...

It needs nothing but Python's standard library. When the command ends, when its time is over, when the stop file
appears or when the supervisor gets SIGTERM, all descendants are ended, also those that became daemons. Then the receipt
is written: `{"cleanup_confirmed", "return_code", "error", "timed_out"}`. `cleanup_confirmed` is true if no descendant
was left.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans of our descendants become our children
_POLL = 0.02
_TIMEOUT_CODE = 124
_CANNOT_START = 127


def exec_timeout(*, timeout: float, cleanup_timeout: float = 10) -> float:
    """The seconds that a sandbox must give the supervisor, so that it can end its command and write the receipt."""
    return timeout + 3 * cleanup_timeout + 30


class _Supervisor:
    def __init__(self, command: list[str], timeout: float, cleanup_timeout: float, stop_file: str | None) -> None:
        self._command, self._timeout = command, timeout
        self._cleanup_timeout, self._stop_file = cleanup_timeout, stop_file
        self._main = -1
        self._status: int | None = None
        self._stopped = False

    def run(self) -> dict[str, Any]:
        """Run the command, end its descendants, and return the receipt."""
        complete = _become_subreaper()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            process = subprocess.Popen(self._command, start_new_session=True)
        except OSError as error:
            said = f"cannot start {self._command[0]}: {error.strerror}"
            return _receipt(cleanup_confirmed=True, return_code=_CANNOT_START, error=said)
        self._main = process.pid
        timed_out = self._wait()
        gone = self._end_all()
        process.returncode = self._status if self._status is not None else -signal.SIGKILL  # we have reaped it
        stop = "stopped before its end" if self._stopped else None
        code = _TIMEOUT_CODE if timed_out else _exit_code(process.returncode)
        return _receipt(cleanup_confirmed=gone and complete, return_code=code, error=stop, timed_out=timed_out)

    def _on_signal(self, number: int, frame: object) -> None:
        self._stopped = True

    def _wait(self) -> bool:
        """Wait for the end of the command. Returns whether its time was over."""
        deadline = time.monotonic() + self._timeout
        while True:
            self._reap()
            if self._status is not None:
                return False
            if self._stop_file is not None and os.path.exists(self._stop_file):
                self._stopped = True
            if self._stopped:
                return False
            if time.monotonic() >= deadline:
                return True
            time.sleep(_POLL)

    def _end_all(self) -> bool:
        """Ask all descendants to end, then kill them. Returns whether none is left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + self._cleanup_timeout
            self._signal_all(number)
            while True:
                self._reap()
                if not _descendants(self._main):
                    return True
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL)
                if number == signal.SIGKILL:  # a fork may have been missed
                    self._signal_all(number)
        return False

    def _signal_all(self, number: int) -> None:
        for pid in _descendants(self._main):
            try:
                os.kill(pid, number)
            except OSError:
                pass

    def _reap(self) -> None:
        """Collect children that have ended: the command, and orphans that became ours."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                self._status = os.waitstatus_to_exitcode(status)


def _become_subreaper() -> bool:
    """Whether orphans come to us. Without this we cannot be certain to find all descendants."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _descendants(main: int) -> list[int]:
    """All living descendants of this process. Without /proc: the group of the command."""
    parents: dict[int, int] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return [main] if _lives(main) else []
    for name in names:
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)] = int(fields[1])
    ours = {os.getpid()}
    grew = True
    while grew:
        children = {pid for pid, parent in parents.items() if parent in ours} - ours
        grew = bool(children)
        ours |= children
    return sorted(ours - {os.getpid()})


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _exit_code(status: int) -> int:
    return status if status >= 0 else 128 - status


def _receipt(
    *, cleanup_confirmed: bool, return_code: int, error: str | None, timed_out: bool = False
) -> dict[str, Any]:
    return {
        "cleanup_confirmed": cleanup_confirmed,
        "return_code": return_code,
        "error": error,
        "timed_out": timed_out,
    }


def _write(path: str, receipt: dict[str, Any]) -> None:
    """Write the receipt under another name first, so that a reader never sees half of it."""
    unfinished = f"{path}.{os.getpid()}"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(receipt, file)
    os.replace(unfinished, path)


def main(arguments: list[str] | None = None) -> int:
    """Run the command of the command line. Returns its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(usage="process_supervisor.py --timeout S --receipt FILE [options] -- COMMAND...")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--receipt", required=True)
    parser.add_argument("--cleanup-timeout", type=float, default=10.0)
    parser.add_argument("--stop-file")
    options = parser.parse_args(words[:cut])
    command = words[cut + 1 :]
    if not command:
        parser.error("name a command after --")
    receipt = _Supervisor(command, options.timeout, options.cleanup_timeout, options.stop_file).run()
    _write(options.receipt, receipt)
    return int(receipt["return_code"])


if __name__ == "__main__":
    sys.exit(main())
