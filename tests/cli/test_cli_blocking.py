"""Code that blocks the event loop is named on stderr, by a run of any length."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forked
import orjson
import pytest

RESOURCES = """\
import time

from ludus import Resources


class Sleepy(Resources):
    async def open(self, task):
        time.sleep(0.4)

    async def verify(self, task, response):
        return 1.0
"""


def words(folder: Path, *more: str) -> list[str]:
    (folder / "sleepy").mkdir()
    (folder / "sleepy" / "environment.yaml").write_text("name: sleepy\nresources: resources.py:Sleepy\n")
    (folder / "sleepy" / "resources.py").write_text(RESOURCES)
    (folder / "rows.jsonl").write_text('{"responses_create_params": {"input": "hi"}}\n')
    (folder / "script.yaml").write_text("- done\n")
    named = ["collect", "./sleepy", "--input", "rows.jsonl", "--model", "scripted:script.yaml", "--output", "out"]
    return [sys.executable, "-m", "ludus", *named, *more]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_short_run_names_the_blocking_call_on_stderr(tmp_path: Path, more: tuple[str, ...]):
    done = forked.run(words(tmp_path, "--repeats", "5", *more), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: open of sleepy blocked the event loop") == 1, done.stderr
    if more:
        assert orjson.loads(done.stdout)["counts"]["completed"] == 5


def test_the_blocking_call_is_named_while_the_loop_is_blocked(tmp_path: Path):
    command = words(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = RESOURCES.replace("time.sleep(0.4)", f"open({str(pipe)!r}).read()")  # it blocks until the test writes
    (tmp_path / "sleepy" / "resources.py").write_text(code)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        line = running.stderr.readline()  # the loop stays blocked until the pipe is written below
        pipe.write_text("go on")
        running.communicate(timeout=60)
    assert line.startswith("warning: open of sleepy blocked the event loop"), line
    assert running.returncode == 0
