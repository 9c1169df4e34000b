"""`gym eval compare` reports the metrics of two collections and their differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_commands import typed


def write(path: str, **metrics: Any) -> None:
    Path(path).write_text(json.dumps([{"agent_ref": {"name": "my_agent"}, "key_metrics": metrics}]))


def test_two_collections_are_compared_metric_by_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("a_aggregate_metrics.json", **{"mean/reward": 0.25, "only_before": 1, "name": "x"})
    write("b_aggregate_metrics.json", **{"mean/reward": 0.75, "only_after": 2})
    line = "gym eval compare --baseline a_aggregate_metrics.json --candidate b_aggregate_metrics.json --output-dir out"
    assert typed(line) == 0
    report = json.loads(Path("out/compare_report.json").read_text())
    assert report["agents"]["my_agent"] == {
        "mean/reward": {"baseline": 0.25, "candidate": 0.75, "difference": 0.5},
        "only_after": {"baseline": None, "candidate": 2.0, "difference": None},
        "only_before": {"baseline": 1.0, "candidate": None, "difference": None},
    }
    assert "| mean/reward | 0.25 | 0.75 | 0.5 |" in Path("out/compare_report.md").read_text()


@pytest.mark.parametrize("text", [None, "nonsense", "[1]", "{}"])
def test_a_file_that_holds_no_metrics_is_named(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write("a.json", x=1)
    if text is not None:
        Path("b.json").write_text(text)
    assert typed("gym eval compare --baseline a.json --candidate b.json --output-dir out") == 2
    assert "b.json" in capsys.readouterr().err
