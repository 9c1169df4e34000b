"""Faults on purpose: a collection that is broken in every way still ends with one honest record for every rollout."""

from __future__ import annotations

import sys
from typing import Any

import forked
import orjson
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from interrupted import Asked, Climb, Compared, Ledger, adds, complete, rows
from kills import Killed
from ludus_bench.chaos.rates import Chaos
from ludus_bench.chaos.records import Faults, check_records

import ludus
from ludus import UserError

LIMITS = {"limits.model": 1.0, "limits.tool": 1.0}


@pytest.mark.parametrize(
    ("fault", "stage", "kind"),
    [
        ("model_500", "model", "http_500"),
        ("model_hang", "model", "timeout"),
        ("model_abort", "model", "aborted"),
        ("tool_hang", "tool", "timeout"),
        ("judge_down", "verify", "judge"),
    ],
)
async def test_a_fault_fails_its_rollout_and_no_other(tmp_path, fault, stage, kind) -> None:
    given: dict[str, Any] = {"input": rows(20), "settings": LIMITS, "chaos": f"seed=3,{fault}=10%"}
    result = await complete(Ledger, Asked(adds), tmp_path / "out", **given)
    counts, chaos = result.metrics["counts"], result.metrics["chaos"]
    assert chaos["problems"] == []
    assert chaos["rollouts"] == counts["dispatched"] == 20
    assert 0 < counts["failed"] == chaos["faults"][fault] < 20
    found = [orjson.loads(line) for line in (tmp_path / "out" / "failures.jsonl").read_bytes().splitlines()]
    assert {(row["stage"], row["kind"]) for row in found} == {(stage, kind)}


async def test_a_resumed_run_meets_other_faults_and_ends(tmp_path) -> None:
    given: dict[str, Any] = {"input": rows(10), "chaos": "seed=3,model_500=10%", "max_attempts": 50}
    for attempt in range(50):
        result = await complete(Ledger, Asked(adds), tmp_path / "out", resume=attempt > 0, **given)
        assert result.metrics["chaos"]["problems"] == []
        if not result.metrics["counts"]["failed"]:
            break
    assert result.metrics["counts"]["completed"] == 10


async def test_a_disk_that_is_full_for_a_moment_loses_no_rollout(tmp_path) -> None:
    given: dict[str, Any] = {"input": rows(30), "chaos": "seed=1,disk_full=20%"}
    result = await complete(Ledger, Asked(adds), tmp_path / "out", **given)
    assert result.metrics["chaos"]["faults"]["disk_full"] > 0
    assert result.metrics["chaos"]["problems"] == []
    assert result.metrics["counts"]["completed"] == 30


async def test_a_game_and_a_group_verdict_meet_faults_too(tmp_path) -> None:
    def climbs(request: Any) -> str:
        return str(request.turn + 1)

    chaos = "seed=1,tool_hang=5%"
    result = await complete(Climb, Asked(climbs), tmp_path / "a", input=rows(20), settings=LIMITS, chaos=chaos)
    assert result.metrics["chaos"]["problems"] == []
    assert result.metrics["chaos"]["faults"]["tool_hang"] == result.metrics["counts"]["failed"] > 0
    chaos = "seed=1,judge_down=30%"
    result = await complete(Compared, Asked(adds), tmp_path / "b", input=rows(10), repeats=2, chaos=chaos)
    assert result.metrics["chaos"]["problems"] == []
    assert result.metrics["counts"]["failed"] == 2 * result.metrics["chaos"]["faults"]["judge_down"] > 0


def test_the_command_breaks_workers_and_says_in_one_line_that_the_records_are_right(tmp_path):
    killed = Killed(tmp_path / "sums", 16, "--workers", "2")
    words = [sys.executable, "-m", "ludus", "collect", str(killed.folder), "--model", "scripted:answers:respond"]
    words += ["--input", "rows.jsonl", "--output", "out", "--concurrency", "6", "--workers", "2"]
    words += ["--chaos", "seed=2,worker_kill=20%,model_500=2%,disk_full=2%,node_kill=1"]
    done = forked.run(words, cwd=killed.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning: node_kill kills nothing: there are no nodes without --ray" in done.stderr
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("chaos: ")]
    assert line.startswith("chaos: 16 rollouts, each with one record, none scored on a fault. Faults: ")
    assert "worker_kill" in line


def test_a_resumed_run_meets_other_faults_in_its_worker_processes_too(tmp_path, monkeypatch):
    folder = Killed(tmp_path / "sums", 8).folder
    monkeypatch.syspath_prepend(folder)
    options: dict[str, Any] = {"model": "scripted:answers:respond", "input": folder / "rows.jsonl", "workers": 2}
    options |= {"output": tmp_path / "out", "chaos": "seed=1,judge_down=50%"}
    options |= {"max_attempts": 9}
    completed = [ludus.collect(str(folder), **options).metrics["counts"]["completed"]]
    while len(completed) < 9 and completed[-1] == completed[0]:
        completed.append(ludus.collect(str(folder), **options, resume=True).metrics["counts"]["completed"])
    assert 0 < completed[0] < completed[-1]


ROW = {"rollout_id": "a-0", "attempt": 1, "rollout_seed": 5, "reward": 1.0}


@pytest.mark.parametrize(
    ("rollouts", "failures", "struck", "problem"),
    [
        ([ROW], [], set(), None),
        ([], [{"rollout_id": "a-0", "attempt": 1}], {5}, None),
        ([{**ROW, "attempt": 2}], [{"rollout_id": "a-0", "attempt": 1}], set(), None),
        ([], [], set(), "a-0 has no record"),
        ([ROW, ROW], [], set(), "a-0 is recorded twice"),
        ([ROW], [{"rollout_id": "a-0", "attempt": 1}], set(), "a-0 is recorded twice"),
        ([], [{"rollout_id": "a-0", "attempt": 1}] * 2, set(), "a-0 is recorded twice"),
        ([ROW], [], {5}, "a-0 has a reward although it met a fault"),
        ([], [{"rollout_id": "a-0", "attempt": 1, "reward": 0.0}], {5}, "a-0 failed and has a reward"),
    ],
)
def test_the_check_finds_lost_doubled_and_scored_rollouts(rollouts, failures, struck, problem):
    found = check_records(["a-0"], rollouts, failures, Faults(struck=struck))
    assert found == ([problem] if problem else [])


def test_rates_are_percentages_or_numbers():
    chaos = Chaos.parse("seed=7, worker_kill=1%,disk_full=0.1%,judge_down=0.02,node_kill=1")
    assert (chaos.seed, chaos.worker_kill, chaos.disk_full, chaos.judge_down) == (7, 0.01, 0.001, 0.02)
    for text, words in [("modle_500=1%", "Did you mean model_500"), ("model_500=x", "percentage"), ("seed=a", "whole")]:
        with pytest.raises(UserError, match=words):
            Chaos.parse(text)


@for_all(st.text(alphabet="seed,=%0.1\nmodel_50é", max_size=30))
def test_a_text_is_read_as_faults_or_refused_with_one_line(text):
    told = ""
    try:
        chaos = Chaos.parse(text)
    except UserError as error:
        told = str(error)
    else:
        assert 0 <= chaos.model_500 <= 1
    assert "\n" not in told


def test_an_unknown_fault_is_answered_with_the_faults_that_a_user_may_ask_for():
    with pytest.raises(
        UserError, match="--chaos has no fault 'nosuch'. Known: disk_full, judge_down, .*seed"
    ) as raised:
        Chaos.parse("nosuch=1%")
    assert "round" not in str(raised.value)
