"""The simulation of clusters, against cases whose result is known without it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "simulate_scale.py"


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate_scale", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulate_scale"] = module
    spec.loader.exec_module(module)
    return module


def costs(scale: ModuleType, worker: float, collector: float, delay: float = 1.0, calls: int = 2) -> Any:
    return scale.Costs(worker, collector, calls, lambda: delay)


def test_a_rollout_alone_takes_its_delays_and_its_cpu_time(scale: ModuleType) -> None:
    found = scale.simulate(costs(scale, 0.3, 0.1), workers=1, in_flight=1, rollouts=5)
    assert found.mean_s == pytest.approx(2.3)
    assert found.rate == pytest.approx(1 / 2.4)  # the collecting process hands out the next rollout after it


@pytest.mark.parametrize(
    ("worker", "collector", "workers", "rate"),
    [(0.01, 0.0001, 2, 200.0), (0.0001, 0.01, 8, 100.0), (0.001, 0.0, 4, 100.0 / 2.001)],
)
def test_the_rate_is_that_of_the_slowest_part(
    scale: ModuleType, worker: float, collector: float, workers: int, rate: float
) -> None:
    """Operational bounds: a full worker, a full collecting process, and neither (in flight over time)."""
    in_flight = 100 if rate < 100 else 1000
    found = scale.simulate(costs(scale, worker, collector), workers, in_flight, 40 * in_flight)
    assert found.rate == pytest.approx(rate, rel=0.05)
    assert found.workers == pytest.approx(found.rate * worker / workers, rel=0.01)
    assert found.collector == pytest.approx(found.rate * collector, rel=0.01, abs=1e-9)


def test_a_part_of_a_cluster_behaves_as_the_whole(scale: ModuleType) -> None:
    whole = scale.simulate(costs(scale, 0.002, 0.0005), 40, 8000, 24_000)
    part = scale.simulate(costs(scale, 0.002, 0.0005), 40, 8000, 24_000, shrink=8)
    assert part.rate == pytest.approx(whole.rate, rel=0.05)
    assert part.collector == pytest.approx(whole.collector, rel=0.05)
    assert part.mean_s == pytest.approx(whole.mean_s, rel=0.05)


def test_a_measured_point_that_the_model_describes_is_reproduced(scale: ModuleType) -> None:
    truth = scale.simulate(costs(scale, 0.004, 0.0004), workers=2, in_flight=400, rollouts=1600)
    point = {
        "workers": 2,
        "in_flight": 400,
        "rollouts": 1600,
        "calls_per_rollout": 2.0,
        "stub_late_s": 0.0,
        "cpu_s": {"workers": 0.002, "collector": 0.0002, "stub": 0.0},  # each gets half of its core
        "cpu_share": {"workers": 0.5, "collector": 0.5},
        "rollouts_per_second": truth.rate,
        "rollout_s": {"mean": truth.mean_s},
        "memory_bytes": 1.0,
        "journal_bytes": 1.0,
        "http_bytes": 1.0,
    }
    text, of_rate, of_time = scale.reproduced([point], "1")
    assert of_rate < 0.001
    assert of_time < 0.001
    assert "| 400 |" in text
