"""A collection on a Ray cluster of this machine: the part of the tests of Ray that `make test` runs.

Ray is installed in its own virtual environment, which `make test` makes. `make test-ray` runs the other tests of Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from ray_runs import DEMANDED, environment, records, rows
from waiting import CEILING, until_gone

PYTHON = Path(os.environ.get("LUDUS_RAY_VENV") or Path(__file__).parents[2] / ".venv-ray").absolute() / "bin" / "python"

pytestmark = pytest.mark.slow


def test_a_local_cluster_plays_every_rollout_once_although_a_worker_dies(tmp_path: Path):
    if not PYTHON.with_name("ray").exists() and not os.environ.get(DEMANDED):
        pytest.skip("Ray is not installed in .venv-ray: make .venv-ray/installed")
    folder = environment(tmp_path / "waits")
    lines = [*rows(20), {**rows(1)[0], "task_id": "dies", "dies_unless": str(tmp_path / "died")}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    words = (
        "collect . --model scripted:ray_answers:respond --input rows.jsonl --output out --ray local --workers 2 --json"
    )
    command, environ = [str(PYTHON), "-m", "ludus", *words.split()], {**os.environ, "PYTHONPATH": str(folder)}
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=CEILING)
    if ended.returncode == 2 and "Ray did not start on this machine" in ended.stderr and not os.environ.get(DEMANDED):
        pytest.skip(ended.stderr.strip().splitlines()[-1])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["counts"] == {"dispatched": 21, "completed": 21, "failed": 0, "masked": 0}
    assert json.loads(ended.stdout)["workers"] == {"count": 2, "died": 1}
    until_gone(*{row["process"] for row in records(folder / "out")})
