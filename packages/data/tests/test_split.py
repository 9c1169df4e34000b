"""A split depends on content alone: rows never move when the data grows, and equal prompts stay together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from data_rows import command, read, row, write
from hypothesis import given
from hypothesis import strategies as st
from ludus_data.split import Splitter, split

from ludus import UserError

PROMPTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=30)
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


@given(old=PROMPTS, new=PROMPTS, random=st.randoms())
def test_no_row_moves_when_the_data_grows(old, new, random, tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    grown = [*old, *new]
    random.shuffle(grown)
    found = []
    for name, prompts in (("old", old), ("grown", grown)):
        if not prompts:
            return
        write(folder / f"{name}.jsonl", *(row(prompt) for prompt in prompts))
        report = split([folder / f"{name}.jsonl"], folder / name, SHARES)
        assert report.rows == sum(report.parts.values()) == len(prompts)
        parts = {part: read(folder / name / f"{part}.jsonl") for part in SHARES}
        found.append({each["responses_create_params"]["input"]: part for part in SHARES for each in parts[part]})
    assert found[0].items() <= found[1].items()


def test_the_shares_hold_on_average():
    splitter = Splitter(SHARES)
    parts = [splitter.part_of("", row(f"question {number}")) for number in range(5000)]
    for name, share in SHARES.items():
        assert abs(parts.count(name) / 5000 - share) < 0.03


def test_shares_are_divided_by_their_sum_and_the_help_says_so(tmp_path: Path):
    rows = [row(str(number)) for number in range(300)]
    relative, whole = Splitter({"train": 8, "test": 2}), Splitter({"train": 0.8, "test": 0.2})
    assert [relative.part_of("", each) for each in rows] == [whole.part_of("", each) for each in rows]
    assert "divided by their sum" in " ".join(command(tmp_path, "split", "--help").stdout.split())


def test_a_larger_share_of_the_first_part_takes_no_row_from_it():
    small, large = Splitter({"train": 0.8, "test": 0.2}), Splitter({"train": 0.9, "test": 0.1})
    rows = [row(str(number)) for number in range(300)]
    assert all(large.part_of("", each) == "train" for each in rows if small.part_of("", each) == "train")


def test_rows_with_the_same_prompt_or_field_stay_together(tmp_path: Path):
    messages = {"responses_create_params": {"input": [{"role": "user", "content": "same"}]}, "n": 2}
    splitter = Splitter({"a": 1, "b": 1})
    assert splitter.part_of("", row("same", n=1)) == splitter.part_of("", messages)
    by_group = Splitter({"a": 1, "b": 1}, by="meta.group")
    assert len({by_group.part_of("", row(str(number), meta={"group": 7})) for number in range(20)}) == 1
    with pytest.raises(UserError, match=r"^rows:3: meta\.group is missing"):
        by_group.part_of("rows:3", row())


def test_another_salt_is_another_split():
    rows = [row(str(number)) for number in range(200)]
    one, other = (Splitter(SHARES, salt=salt) for salt in ("", "x"))
    assert [one.part_of("", each) for each in rows] != [other.part_of("", each) for each in rows]


def test_lines_are_copied_unchanged_and_nothing_is_replaced(tmp_path: Path):
    line = b'{ "responses_create_params": {"input": "x"}, "big": 123456789012345678901234567890 }'
    write(tmp_path / "rows.jsonl", line)
    split([tmp_path / "rows.jsonl"], tmp_path / "out", {"all": 1})
    assert (tmp_path / "out" / "all.jsonl").read_bytes() == line + b"\n"
    with pytest.raises(UserError, match="exists already. Add --overwrite"):
        split([tmp_path / "rows.jsonl"], tmp_path / "out", {"all": 1})


def test_a_bad_line_leaves_no_files(tmp_path: Path):
    write(tmp_path / "rows.jsonl", row(), b"{")
    with pytest.raises(UserError, match="rows.jsonl:2: not JSON"):
        split([tmp_path / "rows.jsonl"], tmp_path / "out", SHARES)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_part_cannot_leave_the_folder(tmp_path: Path):
    for name in ("../x", "a/b", ".x", ""):
        with pytest.raises(UserError, match="is not a file name"):
            Splitter({name: 1})


def test_the_command_reads_standard_input(tmp_path: Path):
    rows = "".join(json.dumps(row(str(number))) + "\n" for number in range(20))
    words = [
        sys.executable,
        "-m",
        "ludus",
        "data",
        "split",
        "-",
        "--parts",
        "train=0.5,test=0.5",
        "-o",
        "out",
        "--json",
    ]
    done = subprocess.run(words, cwd=tmp_path, input=rows, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = json.loads(done.stdout)["parts"]
    assert parts == {name: len(read(tmp_path / "out" / f"{name}.jsonl")) for name in ("train", "test")}
    done = command(tmp_path, "split", "-", "--parts", "train", "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
