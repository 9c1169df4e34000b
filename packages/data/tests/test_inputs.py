"""Several files are read one after another, with progress, and a place for every row."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_rows import row, write
from ludus_data.inputs import Inputs, ReadingProgress, file_and_line

from ludus import UserError


def test_files_are_read_in_order_and_rows_have_their_places(tmp_path: Path):
    one = write(tmp_path / "a.jsonl", row("x", n=1), b"", row("y", n=2))
    two = write(tmp_path / "b.jsonl", row("z", n=3))
    found = [(where, each["n"]) for where, each in Inputs([one, two]).rows()]
    assert found == [(f"{one}:1", 1), (f"{one}:3", 2), (f"{two}:1", 3)]
    assert file_and_line(found[1][0]) == (str(one), 3)
    assert file_and_line("no line") == ("no line", None)


def test_progress_counts_all_passes(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", *(row(n=number) for number in range(1024)))
    heard: list[ReadingProgress] = []
    inputs = Inputs([path], heard.append, passes=2)
    for _ in range(2):
        assert sum(1 for _ in inputs.lines()) == 1024
    assert heard[-1] == ReadingProgress(2048, 2 * path.stat().st_size, 1.0)
    shares = [each.share or 0.0 for each in heard]
    assert shares == sorted(shares)
    assert shares[0] < 0.2


def test_the_folder_of_a_collection_stands_for_its_rollouts(tmp_path: Path):
    with pytest.raises(UserError, match="a folder without rollouts.jsonl"):
        Inputs([tmp_path])
    write(tmp_path / "rollouts.jsonl", row())
    assert len(list(Inputs([tmp_path]).rows())) == 1


def test_a_missing_file_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere\.jsonl"):
        list(Inputs([tmp_path / "nowhere.jsonl"]).lines())
