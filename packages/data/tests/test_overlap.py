"""Overlap finds held-out rows whose text stands in the training set, and ignores templates."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from data_rows import command, row, write
from ludus_data.overlap import overlap

from ludus import UserError


def text(seed: int, count: int = 40) -> str:
    draw = random.Random(seed)
    return " ".join(f"w{draw.randrange(3000)}" for _ in range(count))


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    train = write(
        tmp_path / "train.jsonl",
        *(row(f"Solve this. {text(number)}") for number in range(30)),
        row(f"Before. {text(100)} And after."),
        row("What is 2 + 2?"),
    )
    test = write(
        tmp_path / "test.jsonl",
        row(text(100).upper()),  # inside a longer prompt, in other case
        row(f"{text(3, 20)} {text(500, 20)}"),  # the half of it that is new keeps it below the threshold
        row("what is 2 + 2"),  # shorter than a run, the same words
        row("What is 2 + 3?"),
        row(text(501)),
    )
    return train, test


def test_rows_whose_text_stands_in_the_training_set_are_found(sets: tuple[Path, Path]):
    report = overlap([sets[0]], [sets[1]])
    assert (report.train_rows, report.test_rows, report.overlapping) == (32, 5, 2)
    first, short = report.examples
    assert (first.where, first.first, first.share) == (f"{sets[1]}:1", f"{sets[0]}:31", 1.0)
    assert first.text == " ".join(text(100).split()[:13])
    assert (short.where, short.first) == (f"{sets[1]}:3", f"{sets[0]}:32")


def test_a_lower_threshold_finds_partial_copies(sets: tuple[Path, Path]):
    assert overlap([sets[0]], [sets[1]], threshold=0.2).overlapping == 3


def test_instructions_that_many_rows_share_do_not_count(tmp_path: Path):
    rules = " ".join(f"rule{number}" for number in range(60))
    train = write(tmp_path / "train.jsonl", *(row(f"{rules} {text(number, 20)}") for number in range(20)))
    test = write(
        tmp_path / "test.jsonl", *(row(f"{rules} {text(1000 + number, 20)}") for number in range(20)), row(rules)
    )
    report = overlap([train], [test])
    assert (report.overlapping, report.only_template) == (0, 1)


def test_a_pipe_cannot_be_the_held_out_set(sets: tuple[Path, Path]):
    with pytest.raises(UserError, match="can be read only once"):
        overlap([sets[0]], ["/dev/null"])


def test_the_command_exits_with_1_above_the_allowed_share(sets: tuple[Path, Path]):
    folder = sets[0].parent
    done = command(folder, "overlap", "train.jsonl", "test.jsonl")
    assert done.returncode == 1
    assert "2 (40.00% of B)" in done.stdout
    done = command(folder, "overlap", "train.jsonl", "test.jsonl", "--allow", "0.4", "--json")
    assert (done.returncode, json.loads(done.stdout)["share"]) == (0, 0.4)
    done = command(folder, "overlap", "train.jsonl", "nowhere.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
