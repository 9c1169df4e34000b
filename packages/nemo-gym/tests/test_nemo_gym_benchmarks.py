"""A benchmark is found in its configuration file."""

from __future__ import annotations

import json
from pathlib import Path

from nemo_gym.benchmarks import BenchmarkConfig


def written(path: Path, kind: str) -> Path:
    dataset = {"name": "aime", "type": kind, "jsonl_fpath": "benchmarks/aime/data.jsonl", "num_repeats": 4}
    agent = {"entrypoint": "app.py", "datasets": [dataset]}
    path.write_text(json.dumps({"aime_agent": {"responses_api_agents": {"simple_agent": agent}}}))
    return path


def test_a_benchmark_knows_its_agent_and_its_dataset(tmp_path: Path) -> None:
    benchmark = BenchmarkConfig.from_config_path(written(tmp_path / "config.yaml", "benchmark"))
    assert benchmark is not None
    assert (benchmark.name, benchmark.agent_name, benchmark.num_repeats) == ("aime", "aime_agent", 4)
    assert benchmark.dataset.jsonl_fpath == "benchmarks/aime/data.jsonl"


def test_a_file_without_a_benchmark_has_none(tmp_path: Path) -> None:
    assert BenchmarkConfig.from_config_path(written(tmp_path / "config.yaml", "example")) is None
