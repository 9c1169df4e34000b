"""Deduplication keeps the first of equal rows, and with `near` the first of similar ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from data_rows import command, read, row, write
from hypothesis import given
from hypothesis import strategies as st
from ludus_data.dedupe import dedupe
from ludus_data.near import NearDuplicates

from ludus import UserError


@given(prompts=st.lists(st.text("abc ", max_size=3), min_size=1, max_size=30))
def test_the_first_of_equal_rows_is_kept(prompts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dedupe")
    write(folder / "rows.jsonl", *(row(prompt, n=number) for number, prompt in enumerate(prompts)))
    report = dedupe([folder / "rows.jsonl"], folder / "out.jsonl")
    kept = [each["n"] for each in read(folder / "out.jsonl")]
    assert kept == [number for number, prompt in enumerate(prompts) if prompt not in prompts[:number]]
    assert (report.rows, report.kept, report.exact) == (len(prompts), len(kept), len(prompts) - len(kept))
    assert report.differ == report.exact  # they have another n


@given(prompts=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8).map(" ".join), min_size=1, max_size=20))
def test_near_keeps_a_subset_in_order_that_holds_the_first_row(prompts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dedupe")
    write(folder / "rows.jsonl", *(row(prompt, n=number) for number, prompt in enumerate(prompts)))
    report = dedupe([folder / "rows.jsonl"], folder / "out.jsonl", near=0.8)
    kept = [each["n"] for each in read(folder / "out.jsonl")]
    assert kept[0] == 0
    assert kept == sorted(set(kept))
    assert report.rows == report.kept + report.exact + report.near


def words(draw: random.Random, count: int) -> list[str]:
    return [f"w{draw.randrange(5000)}" for _ in range(count)]


def test_similar_texts_are_found_and_different_ones_are_not():
    draw, found, wrong = random.Random(0), 0, 0
    duplicates = NearDuplicates(0.8)
    for _ in range(200):
        text = words(draw, 150)
        assert duplicates.find_or_add(text) is None
        near, far = list(text), list(text)
        near[draw.randrange(150)] = "changed"  # 3 of 148 runs differ: similarity 0.96
        for place in range(0, 150, 8):  # most runs survive in pieces: similarity about 0.45
            far[place] = "changed"
        found += duplicates.find_or_add(near) is not None
        wrong += duplicates.find_or_add(far) is not None
    assert found >= 195
    assert wrong == 0


def test_short_texts_are_found_too_and_their_similarity_is_exact():
    found = 0
    for number in range(100):
        duplicates = NearDuplicates(0.5)
        assert duplicates.find_or_add(f"a b c d {number} f".split()) is None
        similar = duplicates.find_or_add(f"a b c d {number} g".split())
        assert similar in (None, (0, 3 / 5))
        found += similar is not None
    assert found > 80


def test_texts_without_spaces_and_without_words_are_compared_too(tmp_path: Path):
    chinese = "请计算下列算式的结果并且写出完整的推导过程和最后的答案"
    write(tmp_path / "rows.jsonl", row(chinese), row(chinese + "。"), row("?"), row("!"))
    report = dedupe([tmp_path / "rows.jsonl"], near=0.9)
    assert (report.near, report.exact, report.kept) == (1, 0, 3)


def test_by_row_keeps_rows_that_differ_anywhere(tmp_path: Path):
    write(tmp_path / "rows.jsonl", row("x", n=1), row("x", n=2), dict(reversed(row("x", n=1).items())))
    assert dedupe([tmp_path / "rows.jsonl"], by="row").kept == 2
    assert dedupe([tmp_path / "rows.jsonl"], by="n").kept == 2
    assert dedupe([tmp_path / "rows.jsonl"]).kept == 1


def test_a_file_can_be_replaced_by_itself(tmp_path: Path):
    path = write(tmp_path / "rows.jsonl", row("x"), row("x"), row("y"))
    dedupe([path], path, overwrite=True)
    assert len(read(path)) == 2


def test_the_command_exits_with_1_if_it_only_reports_duplicates(tmp_path: Path):
    write(tmp_path / "rows.jsonl", row("x"), row("x"), row("y"))
    done = command(tmp_path, "dedupe", "rows.jsonl")
    assert done.returncode == 1
    assert "rows.jsonl:2" in done.stdout
    done = command(tmp_path, "dedupe", "rows.jsonl", "-o", "unique.jsonl", "--json")
    assert (done.returncode, json.loads(done.stdout)["kept"]) == (0, 2)
    assert command(tmp_path, "dedupe", "unique.jsonl").returncode == 0
    done = command(tmp_path, "dedupe", "rows.jsonl", "--near", "0.1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_similarity_out_of_range_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="--near 3 is not a similarity"):
        dedupe([tmp_path / "rows.jsonl"], near=3)
