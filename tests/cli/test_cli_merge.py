"""`ludus merge`: the commands that read a run read a joined one, and errors are one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from interruptible import start
from waiting import CEILING, until

from ludus.store.journal import Journal

ENV = "example_session_state_mgmt"


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    return forked.run(
        [sys.executable, "-m", "ludus", *words], cwd=folder, env=variables, capture_output=True, text=True
    )


def collect(folder: Path, output: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["collect", ENV, "--model", "scripted:script.yaml", "--repeats", "2", "--output", output, "--json"]
    return command(folder, *words, *more)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: Any) -> Path:
    """A folder with the three shards of a collection, and the same collection in one piece."""
    folder: Path = tmp_path_factory.mktemp("shards")
    (folder / "script.yaml").write_text("- {call: increment_counter, arguments: {count: 1}}\n- done\n")
    assert collect(folder, "whole").returncode == 0
    for number in (1, 2, 3):
        assert collect(folder, f"shard-{number}", "--shard", f"{number}/3").returncode == 0
    done = command(folder, "merge", "shard-1", "shard-2", "shard-3", "--output", "all")
    assert done.returncode == 0, done.stderr
    return folder


def test_merge_prints_a_table(shards):
    done = command(shards, "merge", "shard-1", "shard-2", "shard-3", "-o", "runs/deep/again")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 shards" in done.stdout
    assert "dispatched" in done.stdout
    assert "runs/deep/again" in done.stdout


def test_merge_prints_json_and_nothing_else(shards):
    done = command(shards, "merge", "shard-1", "shard-3", "-o", "two", "--partial", "--json")
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert found["missing_shards"] == ["2/3"]
    assert found["counts"]["dispatched"] == found["rollouts"] + found["failures"]
    assert found.keys() == {
        "output",
        "shards",
        "rollouts",
        "failures",
        "missing_rollouts",
        "duplicates",
        "torn",
        "counts",
        "mean_reward",
        "missing_shards",
    }


def test_missing_shards_are_said_in_a_warning(shards):
    done = command(shards, "merge", "shard-1", "shard-2", "-o", "one", "--partial")
    assert done.returncode == 0
    assert "warning: 1 shard is missing: 3/3" in done.stderr


def test_show_verify_compare_and_collect_accept_the_joined_run(shards):
    shown = command(shards, "show", "all", "--json", "--limit", "100")
    assert len(json.loads(shown.stdout)) == len((shards / "whole" / "rollouts.jsonl").read_bytes().splitlines())
    verified = command(shards, "verify", "all", "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["changed"] == 0
    compared = json.loads(command(shards, "compare", "whole", "all", "--json").stdout)
    assert compared["difference"] == 0
    assert compared["warnings"] == []
    resumed = collect(shards, "all", "--resume")
    assert resumed.returncode == 0
    assert "resuming: 16 of 16 rollouts are already done" in resumed.stderr
    assert json.loads(resumed.stdout)["counts"] == json.loads(collect(shards, "whole", "--resume").stdout)["counts"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shard-1", "shard-2"], "shard 3/3 is missing"),
        (["shard-1", "shard-2", "shard-1"], "shard 1/3 is given twice"),
        (["shard-1", "whole"], "whole is a whole run, not a shard"),
        (["nowhere"], "cannot read nowhere/run.json"),
        (["shard-1", "shard-2", "shard-3", "--output", "whole"], "whole exists already"),
        ([], "Missing argument"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_2(shards, words, said):
    output = [] if "--output" in words else ["--output", "refused"]
    done = command(shards, "merge", *words, *output)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert not (shards / "refused").exists()


def test_a_shard_that_is_still_collected_is_refused(shards):
    with Journal(shards / "shard-2" / "rollouts.jsonl"):
        done = command(shards, "merge", "shard-1", "shard-2", "shard-3", "--output", "early")
    assert done.returncode == 2
    assert "shard-2/rollouts.jsonl is being written by another process" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_merge_leaves_nothing_behind(shards, tmp_path, number):
    """A merge that takes long enough to be stopped: the journal of one shard is a hundred thousand lines."""
    big = tmp_path / "shard-1"
    big.mkdir()
    for name in ("run.json", "metrics.json", "failures.jsonl"):
        (big / name).write_bytes((shards / "shard-1" / name).read_bytes())
    journal = (shards / "shard-1" / "rollouts.jsonl").read_bytes()
    with (big / "rollouts.jsonl").open("wb") as file:
        for _ in range(20_000):
            file.write(journal)
    words = [str(big), str(shards / "shard-2"), str(shards / "shard-3"), "--output", str(tmp_path / "all")]
    process = start([sys.executable, "-m", "ludus", "merge", *words], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: list(tmp_path.glob(".all*")) or process.poll() is not None)
        process.send_signal(number)
        _, errors = process.communicate(timeout=CEILING)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "stopped" in errors
    assert "merging: " in errors  # it took more than a second
    assert [path.name for path in tmp_path.iterdir()] == ["shard-1"]


def test_the_help_has_an_example(tmp_path):
    done = command(tmp_path, "merge", "--help")
    assert "Example: ludus merge runs/shard-* --output runs/all" in " ".join(done.stdout.split())
    assert "--shard 2/8" in " ".join(command(tmp_path, "collect", "--help").stdout.split())
