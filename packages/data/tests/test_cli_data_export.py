"""`ludus data export` as a command: summaries for people and programs, stdout, and one-line errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from rollout_files import rollout, with_tools, write


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    return forked.run(
        [sys.executable, "-m", "ludus", "data", "export", *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    made: Path = tmp_path_factory.mktemp("exports")
    rollouts = [with_tools("a", 0, 1.0), with_tools("a", 1, 0.0), rollout("b", 0, 1.0, mask="cut off")]
    write(made / "run" / "rollouts.jsonl", rollouts)
    return made


def test_the_summary_says_what_was_read_used_left_out_and_not_carried(folder):
    done = command(folder, "run", "--to", "sft", "--min-reward", "0.5", "--reasoning", "drop", "-o", "sft.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "rollouts read",
        "1  masked",
        "1  reward",
        "reasoning was dropped",
        "sft.jsonl",
        "never in this format",
    ):
        assert words in done.stdout
    assert len((folder / "sft.jsonl").read_text().splitlines()) == 1


def test_json_prints_the_summary_and_nothing_else(folder):
    done = command(folder, "run", "--to", "dpo", "-o", "dpo.jsonl", "--json")
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert found["rollouts"] == found["used"] + sum(found["left_out"].values()) == 3
    assert (found["rows"], found["left_out"]) == (1, {"masked": 1})
    assert found.keys() == {
        "format",
        "outputs",
        "rollouts",
        "used",
        "rows",
        "left_out",
        "not_carried",
        "never_carried",
        "several_verifiers",
    }


def test_a_dash_streams_the_rows_to_stdout_and_the_summary_to_stderr(folder):
    done = command(folder, "run", "--to", "openai", "--output", "-")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["messages"][0]["role"] for row in rows] == ["user", "user"]
    assert "stdout has no place for the second file" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--to", "sff", "-o", "x"], "unknown format 'sff'. Did you mean sft?"),
        (["--to", "dpo", "--margin", "-1", "-o", "x"], "--margin -1 is negative. Give 0 or more"),
        (["--to", "dpo", "--length-ratio", "0.5", "-o", "x"], "--length-ratio 0.5 is less than 1"),
        (["--to", "csv", "-o", "-"], "csv is not made of JSON lines"),
        (["--to", "csv", "--tokens", "-o", "x"], "--tokens changes nothing in the format csv"),
        (["--to", "sft", "--reasoning", "some", "-o", "x"], "--reasoning 'some' is unknown"),
        (["--to", "grpo", "--advantage", "zscore", "-o", "x"], "unknown advantage 'zscore'. Did you mean z_score?"),
        (["--to", "sft", "--outcome", "failed", "-o", "x"], "unknown outcome 'failed'"),
        (["--to", "sft", "--min-reward", "2", "--max-reward", "1", "-o", "x"], "--min-reward 2 is more than"),
        (["--to", "sft", "--output", "-", "--json"], "--json and --output - both print to stdout"),
    ],
)
def test_a_mistake_is_one_line_and_makes_no_file(folder, words, error):
    done = command(folder, "run", *words)
    assert done.returncode != 0
    assert error in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (folder / "x").exists()
