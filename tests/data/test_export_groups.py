"""Groups and pairs of an export: found in bounded memory, and the same as a plain search finds."""

from __future__ import annotations

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_files import rollout, write

import ludus
from ludus.data.export.exporting import export
from ludus.data.export.grouping import GroupIndex, IndexedRollout
from ludus.data.export.pairs import LENGTH, Pair, PairRule
from ludus.data.recorded import Sample
from ludus.response import message
from ludus.store.records import Place

TASKS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 5), st.booleans()), max_size=40)


@given(TASKS)
def test_groups_come_in_the_order_of_the_file_and_each_rollout_once(lines: list[tuple[str, int, bool]]):
    expected: dict[str, dict[int, int]] = {}
    with GroupIndex(300_000_000) as index:
        for number, (task, repeat, kept) in enumerate(lines, start=1):
            row = rollout(task, repeat, float(number)).to_row()
            place = Place(1_000_000 * number, 10, number, True)
            index.add(Sample(row), place, length=number, kept=kept, passed=False)
            expected.setdefault(task, {}).setdefault(repeat, number)
        found = [[(entry.repeat, entry.number) for entry in group] for group in index.groups()]
    assert found == [sorted(group.items()) for group in expected.values()]


def entry(number: int, reward: float, length: int) -> IndexedRollout:
    return IndexedRollout(0, 0, number, True, number, reward, length, True, False, False)


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
