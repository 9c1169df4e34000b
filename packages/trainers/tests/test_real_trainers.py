"""Our adapters work in the trainers' own classes, from their wheels (`make interop`)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TRAINERS = Path(os.environ.get("LUDUS_TRAINERS_VENV") or ROOT / ".venv-trainers").absolute()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of each trainer. One process runs them all, because importing them takes most of the time."""
    python = TRAINERS / "bin" / "python"
    if not python.exists() or not any(TRAINERS.glob("lib/python*/site-packages/verl")):
        pytest.skip(f"the trainers are not installed in {TRAINERS}: make interop")
    pytest.importorskip("transformers", reason="needs transformers: pip install 'ludus-transformers[train]'")
    report = tmp_path_factory.mktemp("trainers") / "report.json"
    path = os.pathsep.join(str(each) for each in (ROOT / "src", HERE.parent / "src", ROOT / "tests", HERE))
    variables = {**os.environ, "PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [str(python), str(HERE / "real_trainers.py"), str(report)]
    done = subprocess.run(command, env=variables, cwd=report.parent, capture_output=True, text=True, timeout=600)
    assert report.exists(), done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize("trainer", ["verl", "skyrl", "areal", "tinker", "art"])
def test_the_adapter_gives_the_trainers_own_classes_every_token_as_it_was_sampled(
    reports: dict[str, dict[str, Any]], trainer: str
) -> None:
    report = reports[trainer]
    assert "error" not in report, report["error"]
    checked = {name: problems for name, problems in report.items() if name != "version"}
    assert checked, "the conformance kit did not run"
    for problems in checked.values():
        assert not any(problems.values()), problems


def test_the_page_names_the_versions_that_are_tested(reports: dict[str, dict[str, Any]]) -> None:
    page = (ROOT / "docs" / "trainers.md").read_text()
    for trainer, report in reports.items():
        assert report["version"] in page, trainer
