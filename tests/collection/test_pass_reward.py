"""Which reward counts as a pass: one threshold for pass@k, `ludus verify` and `ludus compare`, and it is shown."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import forked
import pytest

import ludus
from ludus import Environment, Resources, Response, ScriptedModel, UserError

RESOURCES = """\
from ludus import Resources


class Quiz(Resources):
    async def verify(self, task, response):
        return float(response.output_text)
"""
ROWS = [{"responses_create_params": {"input": str(n)}, "task_id": f"t{n}"} for n in range(8)]


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    """An environment with partial credit, and scripts for models that earn 0.4, 0.5 and 0.9."""
    folder = tmp_path / "quiz"
    folder.mkdir()
    (folder / "environment.yaml").write_text("name: quiz\nresources: resources.py:Quiz\npass_reward: 0.5\n")
    (folder / "resources.py").write_text(RESOURCES)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for reward in ("0.4", "0.5", "0.9"):
        (folder / f"{reward}.yaml").write_text(f"- '{reward}'\n")
    return folder


def run(*words: str, cwd: Path) -> str:
    environment = {**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    done = forked.run([sys.executable, "-m", "ludus", *words], cwd=cwd, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def collect(quiz: Path, reward: str, *words: str) -> str:
    given = ("--input", "rows.jsonl", "--model", f"scripted:{reward}.yaml", "--output", f"out{reward}", "--overwrite")
    return run("collect", ".", *given, *words, cwd=quiz)


class Half(Resources):
    """Gives half of the reward to every answer."""

    async def verify(self, task: Any, response: Response) -> float:
        return 0.5


def test_without_a_threshold_only_a_reward_of_1_passes():
    metrics = ludus.collect(Half, model=ScriptedModel(["a"]), input=ROWS).metrics
    assert (metrics["pass_reward"], metrics["pass@k"]["1"]) == (1.0, 0.0)


def test_pass_at_k_uses_the_threshold_of_the_environment(quiz: Path):
    metrics = json.loads(collect(quiz, "0.5", "--repeats", "2", "--json"))
    assert (metrics["pass_reward"], metrics["pass@k"], metrics["pass^k"]) == (0.5, {"1": 1, "2": 1}, {"1": 1, "2": 1})
    assert metrics["tasks"][0]["pass_rate"] == 1
    assert json.loads(collect(quiz, "0.4", "--json"))["pass@k"] == {"1": 0}


def test_the_option_pass_overrides_the_environment_and_the_table_shows_it(quiz: Path):
    table = collect(quiz, "0.5", "--pass", "0.6", "--repeats", "2")
    assert "0.000 (reward ≥ 0.6)" in table
    assert "1.000 (reward ≥ 0.5)" in collect(quiz, "0.5", "--repeats", "2")
    assert json.loads((quiz / "out0.5" / "run.json").read_text())["options"]["pass_reward"] == {"quiz": 0.5}


def test_a_run_resumed_with_another_threshold_counts_all_its_rollouts_with_it(quiz: Path, tmp_path: Path):
    options: dict[str, Any] = {"model": ScriptedModel(["0.5"]), "input": ROWS, "output": tmp_path / "out"}
    ludus.collect(quiz, **options)
    more = ludus.collect(quiz, **options, resume=True, settings={"pass_reward": 0.7})
    assert (more.metrics["pass_reward"], more.metrics["pass@k"]["1"]) == (0.7, 0.0)


def test_verify_counts_passes_before_and_after_with_the_threshold(quiz: Path):
    collect(quiz, "0.5")
    (quiz / "resources.py").write_text(RESOURCES.replace("float(", "0.3 + float("))
    shown = run("verify", "out0.5", "--env", ".", "--pass", "0.6", cwd=quiz)
    assert "0 → 8" in shown
    assert "reward ≥ 0.6" in shown
    found = json.loads(run("verify", "out0.5", "--env", ".", "--json", cwd=quiz))
    assert (found["pass_reward"], found["passed_before"], found["passed_after"]) == (0.5, 8, 8)


def test_compare_counts_passes_with_the_threshold_of_the_runs(quiz: Path):
    collect(quiz, "0.4")
    collect(quiz, "0.9")
    found = json.loads(run("compare", "out0.4", "out0.9", "--json", cwd=quiz))
    assert (found["pass_reward"], found["a"]["pass_rate"], found["b"]["pass_rate"]) == (0.5, 0.0, 1.0)
    assert found["mcnemar"]["only_b"] == 8
    shown = run("compare", "out0.4", "out0.9", "--pass", "0.3", cwd=quiz)
    assert "pass rate (reward ≥ 0.3)" in shown
    found = json.loads(run("compare", "out0.4", "out0.9", "--pass", "0.3", "--json", cwd=quiz))
    assert (found["a"]["pass_rate"], found["b"]["pass_rate"]) == (1.0, 1.0)


def test_compare_warns_about_runs_with_different_thresholds(quiz: Path):
    collect(quiz, "0.4")
    collect(quiz, "0.9", "--pass", "0.8")
    found = json.loads(run("compare", "out0.4", "out0.9", "--json", cwd=quiz))
    assert "a pass is a reward of 0.5 or more in A and of 0.8 or more in B; choose one with --pass" in found["warnings"]
    found = json.loads(run("compare", "out0.4", "out0.9", "--pass", "0.5", "--json", cwd=quiz))
    assert not any("a pass is" in warning for warning in found["warnings"])


@pytest.mark.parametrize("value", ["high", float("nan"), True, None])
def test_a_threshold_that_is_not_a_number_is_refused(value: Any):
    environment = Environment.load(Half).copy()
    with pytest.raises(UserError, match=r"pass_reward=.*: a pass is a reward of at least this number"):
        environment.configure({"pass_reward": value})
