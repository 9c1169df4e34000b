"""A micro model learns an environment through the whole path: environment, collector, contract and TRL."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_grpo" / "train.py"

#: At chance, about one answer in 170 is right: one of 17 symbols, followed by the end.
LEARNT, CHANCE = 0.6, 0.2


def trained(folder: Path, *options: str) -> dict[str, Any]:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("needs trl: pip install 'ludus-gym[train]'")
    command = [sys.executable, str(EXAMPLE), "--output", str(folder), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "held-out reward" in done.stdout
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


@pytest.mark.slow
def test_a_micro_model_learns_and_the_control_with_permuted_rewards_stays_at_chance(tmp_path: Path) -> None:
    learnt = trained(tmp_path / "learnt")
    first, *_, last = learnt["evaluations"]
    assert first["exact"] <= CHANCE
    assert last["exact"] >= LEARNT
    assert last["scored"] == 20
    assert learnt["completions"] == {"trained": 220 * 128}
    assert sum(learnt["shares_of_time"].values()) == pytest.approx(1.0, abs=0.01)
    if importlib.util.find_spec("matplotlib") is not None:
        assert (tmp_path / "learnt" / "curve.png").stat().st_size > 10_000
    control = trained(tmp_path / "control", "--control", "--steps", "120", "--evaluate-every", "120")
    assert control["evaluations"][-1]["exact"] <= CHANCE
