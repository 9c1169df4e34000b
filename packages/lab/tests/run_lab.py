"""The lab, from one command: install what this machine can have, run the tests, play one rollout of each environment.

    make lab

What to install is written once: extras in `packages/lab/pyproject.toml`, programs and folders of the system in `needs`
of each `environment.yaml`. What cannot be had is left out, and the table at the end says which command brings it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lab import names, oracle_rewards
from ludus_lab.needs import missing

from ludus.environment import Environment
from ludus.errors import UserError

LAB = Path(__file__).parents[1]
ROOT = LAB.parents[1]
REPORT = ROOT / "build/lab.xml"
_APT = re.compile(r"apt-get install (?:-y )?([\w.+-]+)")


@dataclass
class Line:
    """A line of the table: what an environment's tests and its oracle's rollout came to."""

    name: str
    domain: str
    tests: Counter[str] = field(default_factory=Counter)
    rollout: str = "not played"
    missing: list[str] = field(default_factory=list)
    wrong: bool = False

    @property
    def cells(self) -> list[str]:
        """The cells of the line as text."""
        counts = ", ".join(f"{self.tests[what]} {what}" for what in ("passed", "failed", "skipped") if self.tests[what])
        return [self.name, self.domain, counts or "none", self.rollout, "; ".join(self.missing)]


def main() -> int:
    """Install, test, play, and print the table. The exit code is 1 if a test or a rollout went wrong."""
    install_extras()
    install_programs()
    lines = run_tests()
    for line in lines.values():
        play_oracle(line)
    print_table(lines.values())
    return int(any(line.wrong or line.tests["failed"] for line in lines.values()))


def install_extras() -> None:
    """Each extra by itself, so that one that cannot be had keeps no other one away; then what is needed besides."""
    extras = tomllib.loads((LAB / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in extras:
        if not _pip_installs(["--editable", f"{LAB}[{extra}]"]):
            print(f"the extra {extra} could not be installed: its environment is left out", flush=True)
    for command in sorted(_missing_commands()):
        words = shlex.split(command)
        if words[:2] == ["pip", "install"] and "ludus-lab" not in command and not _pip_installs(words[2:]):
            print(f"{command!r} failed: its environment is left out", flush=True)


def install_programs() -> None:
    """Programs and folders of the system, as root on a machine with apt-get."""
    packages = sorted({package for command in _missing_commands() for package in _APT.findall(command)})
    if not packages:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"not installed: {' '.join(packages)}. As root: apt-get install -y {' '.join(packages)}", flush=True)
        return
    print(f"installing {' '.join(packages)}", flush=True)
    _succeeds(["apt-get", "update", "-qq"])
    for package in packages:
        if not _succeeds(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]):
            print(f"{package} could not be installed: its environment is left out", flush=True)


def run_tests() -> dict[str, Line]:
    """Run the tests of the lab in one pytest, and count their results by environment."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={REPORT}", str(LAB)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    counts = count_results(REPORT)
    lines = {name: Line(name, Environment.load(name).domain, counts.pop(name, Counter())) for name in names()}
    shared = sum(counts.values(), Counter[str]())
    return {**lines, "(shared)": Line("(shared)", "", shared, "")} if shared else lines


def count_results(report: Path) -> dict[str, Counter[str]]:
    """The results in a JUnit file by the name in `test_NAME.py`."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case in ElementTree.parse(report).iter("testcase"):
        name = re.search(r"\btest_([a-z0-9]+)", case.get("classname") or "")
        result = {child.tag for child in case} & {"failure", "error", "skipped"}
        counts[name[1] if name else ""][
            "passed" if not result else "skipped" if result == {"skipped"} else "failed"
        ] += 1
    return counts


def play_oracle(line: Line) -> None:
    """Play one rollout of the environment's oracle; say what is missing where it cannot be played."""
    if line.name.startswith("("):
        return
    line.missing = [command for _, command in missing(f"ludus_lab.{line.name}")]
    if line.missing:
        return
    try:
        (reward,) = asyncio.run(oracle_rewards(line.name))
    except UserError as error:
        line.rollout, line.wrong = f"failed: {error}", True
        return
    line.rollout, line.wrong = f"reward {reward:g}", reward < Environment.load(line.name).pass_reward


def print_table(lines: Iterable[Line]) -> None:
    """The table, with columns as wide as their texts."""
    head = ["environment", "domain", "tests", "oracle's rollout", "to play it, type"]
    rows = [head, *(line.cells for line in sorted(lines, key=lambda line: (line.domain, line.name)))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _missing_commands() -> set[str]:
    """The commands that install what environments of the lab lack."""
    return {command for name in names() for _, command in missing(f"ludus_lab.{name}")}


def _pip_installs(arguments: list[str]) -> bool:
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return any(_succeeds([*tool, *arguments]) for tool in (uv, pip))


def _succeeds(command: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
    except OSError:
        return False
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
