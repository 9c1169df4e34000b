"""The micro model learns offline (SFT, then DPO) and from a reward model; both are measured on held-out tasks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "train_grpo"

#: Each program takes 20 to 30 seconds of CPU time on a quiet machine. More than this shows that it does too much.
MOST_CPU_SECONDS = 80


def run(script: str, folder: Path, *options: str) -> dict[str, Any]:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("needs trl: pip install 'ludus-gym[train]'")
    command = [sys.executable, str(EXAMPLES / script), "--output", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


@pytest.mark.slow
def test_sft_on_filtered_rollouts_and_dpo_on_pairs_improve_held_out_answers(tmp_path: Path) -> None:
    found = run("offline.py", tmp_path)
    start, form, sft, dpo = found["evaluations"]
    assert [each["scored"] for each in (start, form, sft, dpo)] == [20] * 4
    assert start["exact"] <= 0.2
    for trained in (sft, dpo):
        assert trained["gain_interval"][0] > 0.2
    for stage in found["stages"]:
        made = stage["exported"]
        assert made["rollouts"] == 60 * 48 == made["used"] + sum(made["left_out"].values())
    filtered = [json.loads(line) for line in (tmp_path / "sft-2-1.jsonl").read_text().splitlines()]
    assert min(row["ludus"]["reward"] for row in filtered) >= found["stages"][1]["exported"]["min_reward"] == 1.0
    held_out = set(start["rewards"])
    assert len(held_out) == 20
    assert not held_out & {row["ludus"]["task_id"] for row in filtered}
    assert found["cpu_seconds"] <= MOST_CPU_SECONDS


@pytest.mark.slow
def test_a_policy_trained_on_a_reward_model_wins_by_a_judge_that_took_no_part(tmp_path: Path) -> None:
    found = run("rlhf.py", tmp_path)
    assert found["reward_model"]["interval"][0] > 0.7
    judged = found["judged"]
    assert judged["all"]["win_rate"] > 0.55
    assert judged["all"]["wins"] > 2 * judged["all"]["losses"]
    assert judged["equal"]["win_rate"] > 0.5
    counted = [judged[kind][end] for kind in ("longer", "equal", "shorter") for end in ("wins", "ties", "losses")]
    assert sum(counted) == sum(judged["all"][end] for end in ("wins", "ties", "losses")) == 20 * 4 * 4
    assert found["reward_model_score"]["end"] > found["reward_model_score"]["start"]
    assert sum(found["grpo"]["completions"].values()) == len(found["grpo"]["steps"]) * 96
    assert found["cpu_seconds"] <= MOST_CPU_SECONDS


@pytest.mark.slow
def test_a_program_that_is_over_its_seconds_is_ended(tmp_path: Path) -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("needs trl: pip install 'ludus-gym[train]'")
    command = [sys.executable, str(EXAMPLES / "offline.py"), "--output", str(tmp_path), "--seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 124
    assert "Give more with --seconds" in done.stderr
