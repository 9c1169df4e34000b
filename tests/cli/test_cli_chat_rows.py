"""The row that `ludus chat` plays: any row of any dataset, but never rows from standard input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import forked
import pytest

YAML = """
name: sums
resources: resources.py:Sums
datasets:
  - {name: example, path: rows.jsonl}
  - {name: endless, generate: "resources.py:sums"}
"""
CODE = """
import itertools
import ludus

class Sums(ludus.Resources):
    def verify(self, task, response):
        return 1.0

def sums(seed, step=1):
    for number in itertools.count(seed, step):
        yield {"responses_create_params": {"input": f"Add one to {number}."}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An environment with a dataset from a file and a generated dataset."""
    (tmp_path / "environment.yaml").write_text(YAML)
    (tmp_path / "resources.py").write_text(CODE)
    rows = [{"responses_create_params": {"input": f"Question {number}"}} for number in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "script.yaml").write_text("- done\n")
    return tmp_path


def chat(folder: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus", "chat", ".", *arguments]
    return forked.run(command, cwd=folder, input=typed, capture_output=True, text=True, timeout=300)


def test_a_row_of_a_generated_second_dataset_can_be_played(folder: Path):
    words = ["--dataset", "endless", "--row", "3", "--seed", "10", "--set", "data.step=5"]
    done = chat(folder, *words, typed="21\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["user", "  Add one to 20."]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--dataset exmple", "has no dataset exmple. Did you mean example?"),
        ("--dataset endless --input rows.jsonl", "--input and --dataset cannot be used together"),
        ("--input -", "ludus chat reads your turns from standard input, not rows"),
        ("--input - --model scripted:script.yaml", "ludus chat reads your turns from standard input, not rows"),
    ],
)
def test_contradictory_row_options_are_refused_in_one_line(folder: Path, words: str, says: str):
    done = chat(folder, *words.split(), typed=(folder / "rows.jsonl").read_text())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr
