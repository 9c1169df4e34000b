"""The band of the committed training runs: over seeds, each with its own tasks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_grpo"


@pytest.fixture(scope="module")
def plotting() -> Any:
    spec = importlib.util.spec_from_file_location("training_plotting", EXAMPLE / "plotting.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(environment: str, *, control: bool) -> list[dict[str, Any]]:
    end = "-control" if control else ""
    return [json.loads((EXAMPLE / "results" / f"{environment}-seed{seed}{end}.json").read_text()) for seed in (1, 2, 3)]


@pytest.mark.parametrize("environment", ["sort_numbers", "additions"])
def test_the_trained_band_ends_above_the_band_of_the_control(plotting: Any, environment: str) -> None:
    trained = plotting.held_out(committed(environment, control=False))[-1]
    control = plotting.held_out(committed(environment, control=True))[-1]
    assert trained[2][0] > control[2][1]


def test_the_band_of_three_seeds_is_the_t_interval_of_their_means(plotting: Any) -> None:
    runs = [{"evaluations": [{"step": 0, "reward": reward}]} for reward in (0.2, 0.3, 0.4)]
    ((step, mean, (low, high)),) = plotting.held_out(runs)
    assert (step, mean) == (0, pytest.approx(0.3))
    half = 4.3027 * 0.1 / 3**0.5
    assert (low, high) == (pytest.approx(0.3 - half, abs=1e-3), pytest.approx(0.3 + half, abs=1e-3))


def test_a_single_seed_has_a_held_out_band_over_its_tasks(plotting: Any) -> None:
    run = {
        "evaluations": [{"step": 0, "reward": 0.5, "rewards": [0.0, 1.0] * 50}],
        "steps": [{"step": 1, "reward": 0.5}],
    }
    ((_, mean, (low, high)),) = plotting.held_out([run])
    assert mean == 0.5
    assert (low, high) == (pytest.approx(0.4, abs=0.01), pytest.approx(0.6, abs=0.01))
    assert plotting.training([run]) == [(1, 0.5, None)]


def test_the_training_curve_is_the_mean_of_the_last_five_steps(plotting: Any) -> None:
    run = {"steps": [{"step": n, "reward": n / 10} for n in range(1, 8)]}
    assert [round(mean, 3) for _, mean, _ in plotting.training([run])] == [0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5]


@pytest.mark.slow
def test_the_command_draws_the_committed_metrics(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = sorted(map(str, (EXAMPLE / "results").glob("additions-seed*.json")))
    command = [sys.executable, str(EXAMPLE / "plotting.py"), *files, "--output", str(tmp_path / "bands.png")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "trained, step 36: held-out reward 0.435 [0.415, 0.454]" in done.stdout
    assert (tmp_path / "bands.png").stat().st_size > 10_000
