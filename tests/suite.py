"""Runs pytest and ends with what a person looks for: what was skipped and why, what failed, and the time by room.

python tests/suite.py ARGUMENTS OF PYTEST

pytest runs in a child process that writes each outcome into a file as it comes, and the summary is made from that file.
So it is there whatever happened: a worker of xdist that crashed, an internal error, or pytest killed. The exit code is
that of pytest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FILE = "LUDUS_OUTCOMES"
LF = "\n"


class Outcomes:
    """A plugin that writes down which tests began, and which of them failed, were skipped or ended."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115  (a line at a time, to the very end)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(nodeid, "began")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, "ended")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(report.nodeid, "took", f"{report.duration:.3f}")
        self._report(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._report(report)

    def _report(self, report: Any) -> None:
        told = report.longrepr
        if report.failed:
            crash = getattr(told, "reprcrash", None)
            self._write(report.nodeid, "failed", crash.message if crash is not None else str(told).strip())
        elif report.skipped and not hasattr(report, "wasxfail"):
            reason = told[2] if isinstance(told, (tuple, list)) else told
            self._write(report.nodeid, "skipped", str(reason).removeprefix("Skipped: "))

    def _write(self, *line: str) -> None:
        self._file.write(json.dumps(line) + "\n")


def summary(lines: list[list[str]], code: int) -> str:
    """What to print in the end."""
    skipped = Counter(line[2] for line in lines if line[1] == "skipped")
    failed = {line[0]: line[2] for line in reversed(lines) if line[1] == "failed"}
    ended = {line[0] for line in lines if line[1] in ("ended", "failed")}
    unended = dict.fromkeys(line[0] for line in lines if line[1] == "began" and line[0] not in ended)
    told = [f"{skipped.total()} skipped:"] * bool(skipped)
    told += [f"{count:6}  {reason}" for reason, count in skipped.most_common()]
    whole = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not whole:
        told += [f"pytest did not get to its end (exit code {code}): tests that had not begun are missing here"]
        told += [f"{len(unended)} began and did not end:"] * bool(unended)
        told += [f"        {name}" for name in unended]
    told += [f"{len(failed)} failed:" if failed else "none failed" if whole else "none of the others failed"]
    told += [f"        {name} - {why.partition(LF)[0]:.150}" for name, why in sorted(failed.items())]
    return "\n".join([*told, room_times(lines)])


def room_times(lines: list[list[str]]) -> str:
    """How long the tests of each room took, in seconds of all processes together, the longest first."""
    seconds: Counter[str] = Counter()
    for line in lines:
        if line[1] == "took":
            seconds[_room(line[0])] += float(line[2])
    rooms = ", ".join(f"{room} {took:.0f}" for room, took in seconds.most_common())
    return f"seconds by room: {rooms or 'none'}; {seconds.total():.0f} in all"


def _room(nodeid: str) -> str:
    """The room of a test: its folder under tests/, src/ludus/ or packages/; the file's name where it has none."""
    *folders, file = nodeid.partition("::")[0].split("/")
    depth = {"tests": 1, "src": 2, "packages": 1}.get(folders[0], 0) if folders else 0
    return folders[depth] if len(folders) > depth else file.removesuffix(".py")


def main() -> int:
    if path := os.environ.pop(FILE, None):
        sys.path.insert(0, os.getcwd())  # as `python -m pytest` does
        return pytest.main(sys.argv[1:], plugins=[Outcomes(path)])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "outcomes.jsonl")
        child = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, FILE: str(place)})
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:  # pytest got it too, and ends
                pass
        lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    print("\n" + summary(_whole(lines), code), flush=True)
    return code if code >= 0 else 128 - code


def _whole(lines: list[str]) -> list[list[str]]:
    """The lines, less one that was cut off when pytest was killed."""
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


if __name__ == "__main__":
    sys.exit(main())
