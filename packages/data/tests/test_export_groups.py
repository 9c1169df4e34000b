"""Groups and pairs of an export: found in bounded memory, and the same as a plain search finds."""

from __future__ import annotations

import csv
import io
import itertools
import json
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ludus_bench.profile.profile import Profile
from ludus_data.export.exporting import export
from ludus_data.export.grouping import GroupIndex, IndexedRollout, member_of
from ludus_data.export.pairs import LENGTH, Pair, PairRule
from ludus_data.export.records import Place
from ludus_data.recorded import Sample
from rollout_files import rollout, write

import ludus
from ludus.response import message

TASKS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 5), st.booleans()), max_size=40)


@given(TASKS)
def test_groups_come_in_the_order_of_the_file(lines: list[tuple[str, int, bool]]):
    expected: dict[str, list[tuple[int, int]]] = {}
    with GroupIndex(300_000_000) as index:
        for number, (task, repeat, kept) in enumerate(lines, start=1):
            row = rollout(task, repeat, float(number)).to_row()
            place = Place(1_000_000 * number, 10, number, True)
            index.add(member_of(Sample(row)), place, length=number, kept=kept, passed=False)
            expected.setdefault(task, []).append((repeat, number))
        found = [[(entry.repeat, entry.number) for entry in group] for group in index.groups()]
    assert found == [sorted(group) for group in expected.values()]


def entry(number: int, reward: float, length: int) -> IndexedRollout:
    return IndexedRollout(number, number, True, 0, 0, True, reward, length, False, False)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 60)), min_size=2, max_size=10),
    st.floats(1, 4),
)
def test_the_pair_closest_in_length_is_found(group: list[tuple[float, int]], ratio: float):
    members = [entry(number, *each) for number, each in enumerate(group)]
    most, least = max(group)[0], min(group)[0]
    found = PairRule(length_ratio=ratio).pair(members)
    if most == least:
        assert found == "tie"
        return

    def spread(pair: tuple[IndexedRollout, ...]) -> float:
        short, long = sorted(each.length for each in pair)
        return long / short if short else 1.0 if not long else float("inf")

    best = [each for each in members if each.reward == most]
    worst = [each for each in members if each.reward == least]
    closest = min(map(spread, itertools.product(best, worst)))
    if closest > ratio:
        assert found == LENGTH
    else:
        assert isinstance(found, Pair)
        assert spread(found) == closest


def test_groups_of_an_export_are_those_of_a_loaded_run(tmp_path):
    rollouts = [rollout(f"t{number % 7}", number // 7, float(number % 3)) for number in range(50)]
    source = write(tmp_path / "rollouts.jsonl", rollouts)
    export(source, "grpo", tmp_path / "out.jsonl")
    found = [json.loads(line)["ludus"]["rollout_id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [each.rollout_id for group in ludus.load(source).groups() for each in group]


@pytest.mark.parametrize(("to", "what"), [("grpo", "an advantage"), ("rm", "a margin")])
def test_rewards_too_far_apart_to_subtract_are_refused(tmp_path, to, what):
    rollouts = [rollout("a", 0, 1.7e308), rollout("a", 1, -1.7e308)]
    source = write(tmp_path / "rollouts.jsonl", rollouts)
    with pytest.raises(ludus.UserError, match=f"too far apart for {what}. Score the run again") as refused:
        export(source, to, tmp_path / "out.jsonl", advantage="leave_one_out")
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["rollouts.jsonl"]


def test_a_difference_that_only_rounding_keeps_below_the_margin_makes_a_pair(tmp_path):
    assert 0.3 - 0.1 < 0.2
    source = write(tmp_path / "rollouts.jsonl", [rollout("a", 0, 0.3), rollout("a", 1, 0.1)])
    assert export(source, "dpo", tmp_path / "out.jsonl", pairs=PairRule(margin=0.2)).rows == 1
    assert export(source, "dpo", tmp_path / "no.jsonl", pairs=PairRule(margin=0.2001)).left_out == {"margin": 2}


@pytest.mark.parametrize(
    "before", ["", " ", "\xa0", "\ufeff", "\u200b", "\u2060 ", "\x00", "\t", "\u115f", "\u2800", "\ufe0f", "\U000e0001"]
)
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_cell_never_begins_as_a_formula_does(tmp_path, before, sign):
    text = f"{before}{sign}1+1"
    source = write(tmp_path / "rollouts.jsonl", [rollout("a", 0, 1.0, items=[message(text)])])
    export(source, "csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["answer"] for row in csv.DictReader(file)] == ["'" + text]


@given(
    st.lists(st.text(st.sampled_from('a,"\r\n\t\x00\x85\u2028 é=;'), min_size=1, max_size=6), min_size=1, max_size=5)
)
@settings(max_examples=30)
def test_the_sheet_has_the_bytes_that_pythons_csv_module_writes(texts: list[str]):
    with tempfile.TemporaryDirectory() as folder:
        rollouts = [rollout("a", repeat, 1.0, items=[message(text)]) for repeat, text in enumerate(texts)]
        export(write(Path(folder) / "rollouts.jsonl", rollouts), "csv", Path(folder) / "out.csv")
        written = (Path(folder) / "out.csv").read_bytes().decode()
    first, *lines = csv.reader(io.StringIO(written, newline=""))
    assert [line[-1].removeprefix("'") for line in lines] == texts
    expected = io.StringIO(newline="")
    csv.writer(expected).writerows([first, *lines])
    assert written == expected.getvalue()


def test_one_rollout_id_in_two_tasks_counts_twice(tmp_path):
    line = rollout("a", 0, 1.0).encode()
    other = line.replace(b'"task_id":"a"', b'"task_id":"b"')
    assert other != line
    (tmp_path / "rollouts.jsonl").write_bytes(line + b"\n" + other + b"\n" + line + b"\n")
    profile = Profile([tmp_path / "rollouts.jsonl"])
    assert sorted(task for _, task in profile.tasks) == ["a", "b"]
    assert export(tmp_path / "rollouts.jsonl", "grpo", tmp_path / "out.jsonl").rows == 2


@pytest.mark.slow
@pytest.mark.parametrize("to", ["sft", "dpo", "grpo", "hf"])
def test_memory_does_not_grow_with_the_file(tmp_path, to):
    if to == "hf":
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    lines = [rollout("TASK", 0, float(reward), items=[message("cold " * 4000)]).encode() for reward in range(2)]
    source = tmp_path / "rollouts.jsonl"
    with source.open("wb") as file:
        for number in range(1500):  # 30 MB, the repeats of a task far apart
            name = f"task-{number % 375}"
            line = lines[number // 750].replace(b'"TASK-0"', f'"{name}-{number // 375}"'.encode())
            line = line.replace(b'"TASK"', f'"{name}"'.encode()).replace(
                b'"repeat":0', b'"repeat":%d' % (number // 375)
            )
            file.write(line + b"\n")
    assert source.stat().st_size > 25e6
    export(source, to, tmp_path / "warm")
    tracemalloc.start()
    try:
        made = export(source, to, tmp_path / "out")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.rollouts == 1500
    assert made.used >= 750
    assert peak < 20e6
