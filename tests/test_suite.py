"""`make test` ends with what was skipped and why, what failed, and the time by room, whatever happened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from suite import room_times

SUITE = Path(__file__).with_name("suite.py")
TESTS = """
import os, signal
import pytest
from suite import room_times

def test_good(): pass
def test_bad(): assert 1 == 2, "sums"
@pytest.mark.skip(reason="no luck")
def test_never(): pass
def test_hardly(): pytest.skip("no luck")
@pytest.mark.xfail
def test_hopeless(): assert False
"""
SKIPPED = ["2 skipped:", "     2  no luck"]
BAD = "        test_it.py::test_bad - AssertionError: sums"


def run(folder: Path, last: str, *arguments: str) -> tuple[int, list[str]]:
    """The exit code, and the lines of the summary, of a suite with one more test."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(TESTS + last)
    command = [sys.executable, str(SUITE), "-rN", "-p", "no:cacheprovider", *arguments]
    plain = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to import
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=plain)
    *lines, times = done.stdout[done.stdout.index(SKIPPED[0]) :].splitlines()
    assert re.fullmatch(r"seconds by room: test_it \d+; \d+ in all", times)
    return done.returncode, lines


def test_skips_are_folded_by_their_reason_and_failures_are_named(tmp_path: Path):
    found = run(tmp_path, "@pytest.fixture\ndef none(): 1 / 0\ndef test_last(none): pass\n")
    last = "        test_it.py::test_last - ZeroDivisionError: division by zero"
    assert found == (1, [*SKIPPED, "2 failed:", BAD, last])


def test_where_all_is_well_the_exit_code_is_0(tmp_path: Path):
    assert run(tmp_path, "def test_bad(): pass\n") == (0, [*SKIPPED, "none failed"])


@pytest.mark.parametrize(
    ("end", "told", "code"),
    [
        ("os._exit(5)", 5, 5),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, 137),
        ("os.kill(os.getppid(), signal.SIGTERM); signal.pause()", -15, 143),
    ],
)
def test_pytest_may_die(tmp_path: Path, end: str, told: int, code: int):
    died = f"pytest did not get to its end (exit code {told}): tests that had not begun are missing here"
    began = ["1 began and did not end:", "        test_it.py::test_last"]
    found = run(tmp_path, f"def test_last(): {end}\n")
    assert found == (code, [*SKIPPED, died, *began, "1 failed:", BAD])


def test_pytest_may_have_an_internal_error(tmp_path: Path):
    (tmp_path / "conftest.py").write_text("def pytest_runtest_logfinish(nodeid): assert 'last' not in nodeid\n")
    code, lines = run(tmp_path, "def test_last(): pass\n")
    assert code == 3
    assert lines[-2:] == ["1 failed:", BAD]


@pytest.mark.slow
def test_a_worker_may_crash(tmp_path: Path):
    code, lines = run(tmp_path, "def test_last(): os._exit(5)\n", "-p", "xdist", "-n1", "--max-worker-restart=0")
    assert code != 0
    assert lines[-2] == BAD
    assert lines[-1] == "        test_it.py::test_last - worker 'gw0' crashed while running 'test_it.py::test_last'"


def test_times_are_added_up_by_the_folder_of_a_room():
    names = [
        "tests/cli/test_a.py::test_x",
        "tests/cli/test_b.py::test_y",
        "src/ludus/environments/mcqa/test_mcqa.py::t",
    ]
    names += ["packages/nemo-gym/tests/test_c.py::test_z", "tests/test_architecture.py::test_w"]
    lines = [[name, "took", "1.4"] for name in names] + [["tests/cli/test_a.py::test_x", "took", "2.0"]]
    assert room_times(lines) == "seconds by room: cli 5, environments 1, nemo-gym 1, test_architecture 1; 9 in all"
