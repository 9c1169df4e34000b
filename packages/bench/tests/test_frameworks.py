"""The comparison with other frameworks, played with Ludus alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "frameworks.py"


@pytest.mark.skipif(sys.platform != "linux", reason="the comparison reads /proc")
def test_the_comparison_measures_a_finished_and_a_killed_run(tmp_path: Path) -> None:
    output = tmp_path / "frameworks.json"
    words = ["--only", "ludus", "--jobs", "single", "kill", "--in-flight", "64", "--rounds", "1"]
    subprocess.run([sys.executable, str(SCRIPT), *words, "--output", str(output)], check=True)
    played = json.loads(output.read_text())["ludus"]
    single, killed = played["single 64"], played["kill"]
    assert (single["end"], single["tasks"], single["mean_reward"]) == ("finished", 512, 1.0)
    assert single["most_held"] <= 64
    assert single["cpu_ms"] > 0 < single["memory_mb"]
    assert single["overhead_p50_ms"] <= single["overhead_p99_ms"]
    assert (killed["tasks"], killed["doubled"], killed["mean_reward"]) == (60, 0, 1.0)
    assert killed["asked_again"] <= 5 <= killed["answers_before"]
