"""`ludus verify` on the rollouts of several environments of the user's own, each in its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from waiting import CEILING

import ludus
from ludus import ScriptedModel, UserError
from ludus.rescore import rescoring
from ludus.rescore.rescoring import rescore

RESOURCES = """
import ludus
from ludus import ResourcesConfig

class Word(ludus.Resources):
    class Config(ResourcesConfig):
        word: str = "{word}"

    async def verify(self, task, response) -> float:
        return float(response.output_text == self.config.word)
"""


def make(folder: Path, name: str) -> Path:
    """An environment that rewards its own name as the answer."""
    folder.mkdir()
    (folder / "environment.yaml").write_text(f"name: {name}\nresources: resources.py:Word\n")
    (folder / "resources.py").write_text(RESOURCES.format(word=name))
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def verify(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ludus", "verify", *map(str, arguments)]
    variables = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    return forked.run(words, cwd=cwd, capture_output=True, text=True, env=variables, timeout=CEILING)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the environments bank and wordle, and a collection of both in runs/mixed, all answered `bank`."""
    environments = [make(tmp_path / name, name) for name in ("bank", "wordle")]
    rows = [
        {"responses_create_params": {"input": f"{number}"}, "agent_ref": {"name": name}}
        for number in range(3)
        for name in ("bank", "wordle")
    ]
    ludus.collect(environments, model=ScriptedModel(["bank"]), input=rows, output=tmp_path / "runs" / "mixed")
    return tmp_path


def test_each_row_is_scored_in_the_environment_that_it_names_among_those_given(folder: Path):
    path = folder / "runs" / "mixed" / "rollouts.jsonl"
    before = [row["reward"] for row in lines(path)]
    assert sorted(before) == [0, 0, 0, 1, 1, 1]
    both = ("--env", "./bank", "--env", "./wordle")
    done = verify("runs/mixed", *both, "-o", "runs/mixed/rollouts.jsonl", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["unchanged"] == 6
    assert [row["reward"] for row in lines(path)] == before
    changes = rescore(path, [folder / "bank", folder / "wordle"], settings={"wordle.resources.word": "bank"})
    assert changes.counts == {"unchanged": 3, "changed": 3}


def test_several_environments_are_sent_to_helper_processes(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rescoring, "MIN_BYTES_FOR_HELPERS", 1)
    monkeypatch.setattr(rescoring, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(rescoring, "HELPER_DELAY", 0.0)
    monkeypatch.setattr(rescoring, "processors", lambda: 2)
    path = folder / "rows.jsonl"
    row = {"responses_create_params": {"input": "x" * 500}, "response": "bank"}
    names = ("bank", "wordle")
    path.write_text("".join(json.dumps({**row, "agent_ref": {"name": names[n % 2]}}) + "\n" for n in range(10_000)))
    rescore(path, [folder / name for name in names], output=folder / "out.jsonl")
    assert [row["reward"] for row in lines(folder / "out.jsonl")] == [1.0, 0.0] * 5_000


@pytest.mark.parametrize("output", ["runs/mixed/rollouts.jsonl", "new.jsonl"])
def test_an_unknown_environment_in_a_run_is_refused_before_a_reward_is_lost(folder: Path, output: str):
    path = folder / "runs" / "mixed" / "rollouts.jsonl"
    content = path.read_bytes()
    done = verify("runs/mixed", "-o", output, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert len(done.stderr.splitlines()) == 1
    hint = "Write: ludus verify runs/mixed --env ./bank --env ./wordle"
    assert done.stderr == f"error: line 1: unknown environment bank. {hint}\n"
    assert path.read_bytes() == content
    assert not (folder / "new.jsonl").exists()
    assert not list(path.parent.glob(".*.part"))


def test_the_hint_of_a_copied_file_names_the_folder_of_its_first_row(folder: Path):
    (folder / "copy.jsonl").write_bytes((folder / "runs" / "mixed" / "rollouts.jsonl").read_bytes())
    done = verify("copy.jsonl", cwd=folder)
    assert done.returncode == 2
    assert "ludus verify copy.jsonl --env ./bank\n" in done.stderr


def test_without_the_folder_the_hint_says_to_name_it(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = verify(folder / "runs" / "mixed", cwd=elsewhere)
    assert done.returncode == 2
    assert "--env FOLDER_OF_bank --env FOLDER_OF_wordle" in done.stderr


def test_a_row_that_names_none_of_the_given_environments_is_refused(folder: Path):
    other = make(folder / "other", "other")
    path = folder / "runs" / "mixed" / "rollouts.jsonl"
    with pytest.raises(UserError, match="names the environment wordle, not bank or other"):
        rescore(path, [folder / "bank", other], output=path)
    with pytest.raises(UserError, match="line 2 names the environment wordle, not bank.*--env .*--force"):
        rescore(path, [folder / "bank"], output=path)
    assert rescore(path, [folder / "bank"], force=True).rows == 6
    with pytest.raises(UserError, match="--force needs a single --env"):
        rescore(path, [folder / "bank", other], force=True)
    unnamed = folder / "rows.jsonl"
    unnamed.write_text(json.dumps({"responses_create_params": {"input": "x"}, "response": "bank"}) + "\n")
    with pytest.raises(UserError, match="line 1 names no environment"):
        rescore(unnamed, [folder / "bank", other])
    assert rescore(unnamed, [folder / "bank"]).counts == {"new": 1}


def test_metrics_of_a_run_are_written_anew_when_its_rollouts_are_replaced(folder: Path):
    run = folder / "runs" / "mixed"
    before = json.loads((run / "metrics.json").read_bytes())
    assert before["reward"]["mean"] == 0.5
    arguments = ("--env", "./bank", "--env", "./wordle", "--set", "wordle.resources.word=bank")
    verify("runs/mixed", *arguments, "-o", "elsewhere.jsonl", cwd=folder)
    assert json.loads((run / "metrics.json").read_bytes()) == before
    done = verify("runs/mixed", *arguments, "-o", "runs/mixed/rollouts.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "written to runs/mixed/rollouts.jsonl and runs/mixed/metrics.json"
    after = json.loads((run / "metrics.json").read_bytes())
    assert after["reward"]["mean"] == 1.0
    assert after["pass@k"] == {"1": 1.0}
    assert {name: each["reward"]["mean"] for name, each in after["environments"].items()} == {"bank": 1, "wordle": 1}
    assert after["counts"] == before["counts"]
    assert {key: after[key] for key in ("model", "loop", "warnings")} == {
        key: before[key] for key in ("model", "loop", "warnings")
    }
    assert after.keys() == before.keys()
    assert after["seconds"]["wall"] == before["seconds"]["wall"]
    assert ludus.load(run).metrics == after


def test_metrics_written_anew_keep_the_pass_reward_of_the_run_and_count_new_failures(tmp_path: Path):
    make(tmp_path / "bank", "bank")
    rows = [{"responses_create_params": {"input": f"{number}"}} for number in range(3)]
    run = tmp_path / "run"
    ludus.collect(
        tmp_path / "bank", model=ScriptedModel(["bank"]), input=rows, output=run, settings={"pass_reward": 0.5}
    )
    path = run / "rollouts.jsonl"
    path.write_bytes(path.read_bytes() + b"not JSON\n")
    rescore(run, tmp_path / "bank", output=path)
    metrics = json.loads((run / "metrics.json").read_bytes())
    assert metrics["pass_reward"] == 0.5
    assert metrics["counts"] == {"dispatched": 4, "completed": 3, "failed": 1, "masked": 0}


def test_a_setting_for_an_environment_that_is_not_given_is_refused(folder: Path):
    both = [folder / "bank", folder / "wordle"]
    with pytest.raises(UserError, match="--set wordel.resources.word: no environment wordel.*wordle"):
        rescore(folder / "runs" / "mixed", both, settings={"wordel.resources.word": "x"})
