"""A micro model learns through the whole path: environment, collector, contract or export, and TRL.

By GRPO, offline (SFT, then DPO) and from a reward model, all measured on held-out tasks.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from train_programs import EXAMPLES, Programs

pytestmark = pytest.mark.slow

#: At chance, about one answer in 170 is right: one of 17 symbols, followed by the end.
LEARNT, CHANCE = 0.6, 0.2

#: Each program takes 10 to 20 seconds of CPU time after its imports. More than this shows that it does too much.
MOST_CPU_SECONDS = 80


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("needs trl: pip install 'ludus-transformers[train]'")
    with Programs() as programs:
        yield programs


def metrics(programs: Programs, folder: Path, script: str, *options: str) -> dict[str, Any]:
    done = programs.run(script, "--output", str(folder), *options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "held-out" in done.stdout
    assert "gradient_checkpointing" not in done.stderr, "a warning of every evaluation"
    result: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return result


def test_a_micro_model_learns_and_the_control_with_permuted_rewards_stays_at_chance(
    programs: Programs, tmp_path: Path
) -> None:
    common = ("train.py", "--max-batch", "128", "--evaluate-every", "60")
    learnt = metrics(programs, tmp_path / "learnt", *common, "--steps", "180")
    first, *_, last = learnt["evaluations"]
    assert first["exact"] <= CHANCE
    assert last["exact"] >= LEARNT
    assert last["scored"] == 20
    assert learnt["completions"] == {"trained": 180 * 128}
    assert sum(learnt["shares_of_time"].values()) == pytest.approx(1.0, abs=0.01)
    if importlib.util.find_spec("matplotlib") is not None:
        assert (tmp_path / "learnt" / "curve.png").stat().st_size > 10_000
    control = metrics(programs, tmp_path / "control", *common, "--control", "--steps", "120")
    assert control["evaluations"][-1]["exact"] <= CHANCE


def test_sft_on_filtered_rollouts_and_dpo_on_pairs_improve_held_out_answers(programs: Programs, tmp_path: Path) -> None:
    found = metrics(programs, tmp_path, "offline.py")
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


def test_a_policy_trained_on_a_reward_model_wins_by_a_judge_that_took_no_part(
    programs: Programs, tmp_path: Path
) -> None:
    found = metrics(programs, tmp_path, "rlhf.py")
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


def test_a_program_that_is_over_its_seconds_is_ended(tmp_path: Path) -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("needs trl: pip install 'ludus-transformers[train]'")
    command = [sys.executable, str(EXAMPLES / "offline.py"), "--output", str(tmp_path), "--seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 124
    assert "Give more with --seconds" in done.stderr
