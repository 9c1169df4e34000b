"""Standard output: a full disk, a closed pipe, prints of an environment, and valid JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from ludus.cli.screen import safe_json

CODE = """
from ludus import Resources

print("imported")

class Talker(Resources):
    def open(self, task):
        print("opened")

    def verify(self, task, response):
        print("verified")
        return 1.0
"""
COMMANDS = [
    "envs",
    "envs --json",
    "show run",
    "show run --json",
    "show run 1",
    "chat . --model scripted:script.yaml",
    "collect . --model scripted:script.yaml --output another",
    "collect . --model scripted:script.yaml --output another --json",
    "verify run --env . --json",
    "--version",
]


def ludus(folder: Path, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus", *arguments]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"} | {"COLUMNS": "100"}
    return forked.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def talker(tmp_path: Path) -> Path:
    """The folder of an environment that prints in every step, with a collection in `run`."""
    (tmp_path / "environment.yaml").write_text(
        "name: talker\nresources: resources.py:Talker\ndatasets: [{name: example, path: rows.jsonl}]\n"
    )
    (tmp_path / "resources.py").write_text(CODE)
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "Hello"}}\n')
    (tmp_path / "script.yaml").write_text("- done\n")
    done = ludus(tmp_path, "collect", ".", "--model", "scripted:script.yaml", "--output", "run")
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_behind_stdout_is_a_one_line_error(talker: Path, words: str):
    (talker / "resources.py").write_text(CODE.replace("print(", "len("))
    with open("/dev/full", "w") as full:
        done = ludus(talker, *words.split(), stdout=full.fileno())
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1]
        == "error: cannot write the output: No space left on device. Make room, or send it elsewhere"
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("words", ["show run --json", "envs", "--help", "collect . --model scripted:script.yaml"])
def test_a_pipe_closed_before_the_first_line_prints_no_error(talker: Path, words: str):
    (talker / "resources.py").write_text(CODE.replace("print(", "len("))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = ludus(talker, *words.split(), stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 141
    assert not {"Traceback", "error:", "Exception ignored"} & set(done.stderr.split())


@pytest.mark.parametrize(
    "words",
    ["collect . --model scripted:script.yaml --output another --json", "verify run --env . --json", "qualify . --json"],
)
def test_prints_of_an_environment_go_to_stderr_with_json(talker: Path, words: str):
    done = ludus(talker, *words.split())
    assert isinstance(json.loads(done.stdout), dict)
    for line in ("imported", "opened", "verified"):
        assert line in done.stderr.splitlines()


def test_json_has_null_for_nan_and_infinity():
    metrics = {"mean": float("nan"), "ci95": [float("-inf"), 0.5], "by_turn": [{"mean": float("inf")}]}
    assert json.loads(safe_json(metrics), parse_constant=pytest.fail) == {
        "mean": None,
        "ci95": [None, 0.5],
        "by_turn": [{"mean": None}],
    }
