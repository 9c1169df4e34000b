"""The examples for trainers run, and the pages name every adapter."""

from __future__ import annotations

import json
import runpy
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ludus.train.conformance.adapters import ADAPTERS, find_adapter

ROOT = Path(__file__).parents[3]
EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.parametrize(
    ("name", "arguments", "files"),
    [
        ("mcqa_verl.py", ["run"], ["loops.yaml", "train.parquet", "train.sh"]),
        ("mcqa_skyrl.py", ["prepare", "run"], ["train.parquet"]),
        ("mcqa_openrlhf.py", ["run"], ["prompts.jsonl"]),
        ("mcqa_slime.py", ["run"], ["prompts.jsonl"]),
        ("mcqa_areal.py", [], []),
        ("mcqa_tinker.py", [], []),
        ("mcqa_art.py", [], []),
    ],
)
def test_the_example_prepares_its_trainer(
    name: str,
    arguments: list[str],
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "train.parquet" in files:
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    monkeypatch.chdir(tmp_path)
    run(name, *arguments, monkeypatch=monkeypatch)
    assert capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.glob("run/*")) == files
    for line in (tmp_path / "run" / "prompts.jsonl").read_text().splitlines() if "prompts.jsonl" in files else ():
        row = json.loads(line)
        carried = json.loads(row["label"]) if "input" in row else row["metadata"]["ludus_row"]
        assert carried["expected_answer"]


def test_openrlhfs_agent_file_defines_the_class_that_openrlhf_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent / "doubles")
    found = runpy.run_path(str(EXAMPLES / "mcqa_openrlhf.py"), run_name="agent")
    from openrlhf.utils.agent import AgentExecutorBase

    assert issubclass(found["AgentExecutor"], AgentExecutorBase)


def test_the_page_and_the_help_name_every_adapter() -> None:
    page = (ROOT / "docs" / "trainers.md").read_text() + (ROOT / "docs" / "training.md").read_text()
    for name in (*ADAPTERS, *entry_points(group="ludus.trainers").names):
        assert name in page, name


def test_the_kit_finds_every_adapter_of_this_package_by_its_name() -> None:
    names = {"areal", "art", "openrlhf", "skyrl", "skyrl-step-wise", "slime", "tinker", "verl"}
    assert names <= set(entry_points(group="ludus.trainers").names)
    assert {find_adapter(name).name for name in names} == names
