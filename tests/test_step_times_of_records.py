"""Each record says when its steps began and how long they took, so that a page can draw them on a line of time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus.record import read_timings
from ludus.rollout import Rollout

ROW = {"responses_create_params": {"input": "add 3"}, "initial_count": 1, "expected_count": 4}
CALL = {"call": "increment_counter", "arguments": {"count": 3}}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("run")
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps({"task_id": "t", **ROW}) + "\n")
    model = ludus.ScriptedModel([CALL, "done"])
    ludus.collect("example_session_state_mgmt", model=model, input=rows, output=folder / "out")
    found: dict[str, Any] = json.loads((folder / "out" / "rollouts.jsonl").read_text())
    return found


def test_a_record_holds_the_times_of_its_steps_in_order(record: dict[str, Any]):
    steps = record["timings"]["steps"]
    assert [stage for stage, _, _ in steps if stage != "close"] == ["open", "model", "tool", "model", "verify"]
    for (_, at, seconds), (_, later, _) in pairwise(steps):
        assert 0 <= at <= at + seconds <= later + 1e-5  # times are cut to microseconds
    for stage in ("model", "tool", "verify"):
        assert sum(s for name, _, s in steps if name == stage) == pytest.approx(record["timings"][stage], abs=1e-4)
    assert steps[-1][1] + steps[-1][2] <= record["timings"]["total"] + 0.1


def test_steps_are_read_back_and_are_no_stage(record: dict[str, Any]):
    rollout = Rollout.from_row(record)
    assert "steps" not in rollout.timings
    assert [list(step) for step in rollout.steps] == record["timings"]["steps"]
    assert json.loads(rollout.encode())["timings"] == record["timings"]


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_steps_of_another_program_do_no_harm(steps: Any):
    timings, read = read_timings({"timings": {"model": 1.0, "steps": steps}})
    assert timings == {"model": 1.0}
    assert all(isinstance(stage, str) and at >= 0 and seconds >= 0 for stage, at, seconds in read)


def test_rollouts_without_steps_are_read(tmp_path: Path):
    assert read_timings({"timings": {"model": 1.0}}) == ({"model": 1.0}, [])
    assert read_timings({}) == ({}, [])
