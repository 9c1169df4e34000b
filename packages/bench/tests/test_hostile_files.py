"""A file of rollouts can hold anything: a profile is made or refused, and a recall counts every line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ludus_bench.profile.profile import Profile
from ludus_bench.profile_view import show_profile
from ludus_qualify.recall import recall
from profiled_runs import Words, collect

from ludus import Environment
from ludus.cli.screen import safe_json, stdout_console
from ludus.errors import UserError
from ludus.store.stored_run import StoredRun

FIELDS = (
    "rollout_id task_id repeat attempt outcome reward verdict_fields reward_components turn_rewards mask receipt "
    "replay_drift stop_reason rollout_seed response usage timings model_calls tool_errors agent_ref judge_usage "
    "responses_create_params task_fields"
).split()

numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([1e308, -1e308, 0, 1]))
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=3), st.sampled_from(["completed", "failed"]))
names = st.sampled_from(["model", "name", "input_tokens", "output_tokens", "items", "tool", "count", "output", "user"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


def record() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = collect(Path(folder, "run"), "call", "1 10")
        found: dict[str, Any] = json.loads((run / "rollouts.jsonl").read_text())
        return found


RECORD = record()
changed = st.builds(lambda fields: {**RECORD, **fields}, st.dictionaries(st.sampled_from(FIELDS), values, max_size=3))


@settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(changed, min_size=1, max_size=3))
@example([{**RECORD, "agent_ref": {"name": ["x"]}}])
@example([{**RECORD, "timings": {"model": "x"}}])
@example([{**RECORD, "timings": {"model": 2**2000}}])
@example([{**RECORD, "timings": {"model": float("inf")}}])
@example([{**RECORD, "response": {**RECORD["response"], "tools": [{"name": [1]}]}}])
@example([{**RECORD, "response": {"output": "text"}}])
@example([{**RECORD, "response": {"output": ["text"]}}])
@example([{**RECORD, "reward": 1e308}, {**RECORD, "reward": -1e308, "rollout_id": "t-9"}])
def test_any_rows_make_a_profile_or_a_user_error(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        try:
            profile = Profile([file])
        except UserError:
            return
        summary = profile.summary()
        counts = summary["overall"]["counts"]
        assert counts["dispatched"] == counts["completed"] + counts["failed"] + counts["masked"]
        json.loads(safe_json(summary))
        show_profile(stdout_console(), summary)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(changed, min_size=1, max_size=3))
def test_a_recall_counts_any_row_once(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        try:
            found = recall([file], Environment.load(Words), output=Path(folder, "out"))
        except UserError:
            return
        with StoredRun(file).lines() as lines:
            assert found.total.findings.total() + found.runs[0].other == sum(1 for _ in lines.counted())
        json.loads(safe_json(found.summary()))
