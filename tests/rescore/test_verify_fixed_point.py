"""`ludus verify` is a fixed point: run again on its own output, it writes the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ludus import Resources, Response, Task
from ludus.rescore.rescoring import rescore

GOOD = '{"responses_create_params":{"input":"x"},"response":"yes","wanted":"yes"}'
DEEP = '{"responses_create_params":{"input":"x"},"wanted":"yes","response":"yes","deep":' + "[" * 990 + "]" * 990 + "}"
PAGES = "�\u2028\x85"


class Said(Resources):
    """Rewards a word, and fails on the answer crash."""

    class Task(Task):
        wanted: str

    async def verify(self, task: Task, response: Response) -> float:
        if response.output_text == "crash":
            raise ValueError("boom")
        return float(response.output_text == task.wanted)


def written_twice(folder: Path, data: bytes, environment: Any = Said) -> tuple[bytes, bytes]:
    path = folder / "rows.jsonl"
    path.write_bytes(data)
    before = rescore(path, environment, output=path)
    once = path.read_bytes()
    after = rescore(path, environment, output=path)
    assert after.rows == before.rows
    assert (after.counts["failed"], after.failures) == (before.counts["failed"], before.failures)
    return once, path.read_bytes()


_pieces = st.sampled_from([GOOD, GOOD.replace('"yes"', '"crash"', 1), "not JSON", "{", "7", "null", DEEP, PAGES, "\\"])
_lines = st.one_of(_pieces, st.text(max_size=30), st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.dictionaries(
        st.sampled_from("text line kind stage cause outcome rollout_id task_id response wanted agent_ref".split()),
        inner,
    ),
    max_leaves=9,
).map(json.dumps))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_lines, min_size=1, max_size=8), st.sampled_from([Said, None]))
@example(["not JSON"], Said)
@example([GOOD, "{", DEEP], None)
@example(['{"text": null, "rollout_id": ""}'] * 2, Said)
def test_verifying_any_lines_twice_writes_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], environment: Any
):
    data = "\n".join([GOOD, *lines, ""]).encode("utf-8", "surrogatepass")
    once, twice = written_twice(tmp_path_factory.mktemp("twice"), data, environment)
    assert twice == once


def test_a_line_that_is_not_json_keeps_its_text_and_cause_when_lines_before_it_are_removed(tmp_path: Path):
    once, _ = written_twice(tmp_path, f"{GOOD}\nnot JSON\n".encode())
    broken = once.splitlines(keepends=True)[1]
    again, _ = written_twice(tmp_path, broken)
    assert again == broken
    row = json.loads(broken)
    assert (row["text"], row["kind"], row["line"]) == ("not JSON", "bad_row", 2)
    assert row["cause"].startswith("not JSON")


def test_a_row_that_is_nested_too_deeply_keeps_its_text(tmp_path: Path):
    once, twice = written_twice(tmp_path, f"{DEEP}\n".encode())
    assert once == twice
    row = json.loads(once)
    assert (row["kind"], row.get("text")) == ("bad_row", DEEP)
