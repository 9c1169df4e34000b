"""What to run after every change: lint, types, and the fast tests of the words and of the rooms that changed.

python tests/check.py

A room has changed if a file of it differs from the branch that this one will join (`origin/main`, else the last
commit). ruff and mypy run beside the tests; what they say comes last.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

#: Tests of what every other part is made of.
ALWAYS = (
    "tests/test_architecture.py",
    "tests/words",
    "tests/store",
    "tests/runtime",
    "tests/collection/test_collect.py",
)
LINT = f"{BIN}/ruff check . && {BIN}/ruff format --check --quiet . && {BIN}/mypy"


def changed_files() -> list[str]:
    """The files that differ from `origin/main`, or from the last commit where there is no such branch."""
    base = _git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def tests_of(files: list[str]) -> list[str]:
    """The test files and folders of changed files."""
    places = (_tests_of(Path(file)) for file in files)
    return list(dict.fromkeys(place for place in places if place is not None and (ROOT / place).exists()))


def _tests_of(file: Path) -> str | None:
    if file.suffix != ".py":
        return None
    if file.name.startswith("test_"):
        return str(file)
    match file.parts:
        case ("src", "ludus", "environments" | "cookbook" as room, name, *_):
            return f"src/ludus/{room}/{name}"
        case ("src", "ludus", room, _, *_):
            return f"tests/{room}"
        case ("packages", package, *_):
            return f"packages/{package}/tests"
    return None


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.split()


def main() -> int:
    places = [*ALWAYS, *tests_of(changed_files())]
    print("tests:", *places, flush=True)
    with tempfile.TemporaryFile() as said:
        linting = subprocess.Popen(["sh", "-c", LINT], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        words = ["-m", "pytest", "-m", "not slow", "--numprocesses", "2", "--dist", "loadfile", *places]
        tested = subprocess.run([sys.executable, *words], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
        linted = linting.wait()
        said.seek(0)
        print(said.read().decode(), end="")
    return tested.returncode or linted


if __name__ == "__main__":
    sys.exit(main())
