"""A verifier that was edited between the start of a run and its resume: refused, or accepted and named everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import forked
import orjson
import pytest
from ludus_data.export.exporting import export
from viewing import Visitor, until_indexed, viewing

import ludus
from ludus import ScriptedModel, UserError
from ludus.train.stored import stored_groups

SOURCE = """
from ludus import Resources

class Graded(Resources):
    async def verify(self, task, response):
        return REWARD
"""

MODEL = ScriptedModel(["done"], name="m")


class Edited:
    """An environment whose verifier gives the same reward to all, and a run of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder / "graded", folder / "out"
        self.folder.mkdir()
        (self.folder / "environment.yaml").write_text(
            "name: graded\nresources: resources.py:Graded\nagent: {type: single_turn}\n"
        )
        self.rows = folder / "rows.jsonl"
        texts = (f'{{"responses_create_params": {{"input": "{name}"}}, "task_id": "{name}"}}\n' for name in "ab")
        self.rows.write_text("".join(texts))
        self.edit("0.0")

    def edit(self, reward: str) -> None:
        (self.folder / "resources.py").write_text(SOURCE.replace("REWARD", reward))

    def collect(self, repeats: int, **options: object) -> ludus.Collection:
        return ludus.collect(self.folder, model=MODEL, input=self.rows, output=self.output, repeats=repeats, **options)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        ludus_words = [sys.executable, "-m", "ludus", *words]
        return forked.run(ludus_words, cwd=self.folder.parent, capture_output=True, text=True, input="")


@pytest.fixture
def edited(tmp_path):
    return Edited(tmp_path)


@pytest.fixture
def mixed(edited):
    """A run whose tasks have two rollouts of each of two verifiers."""
    edited.collect(2)
    edited.edit("1.0")
    edited.collect(4, resume=True, accept_new_verifier=True)
    return edited


def test_resume_refuses_an_edited_verifier_and_names_the_file(edited):
    edited.collect(2)
    edited.edit("1.0")
    with pytest.raises(
        UserError, match=r"the verifier has changed since .*run.json was written: graded.verifier.resou"
    ):
        edited.collect(4, resume=True)
    assert len((edited.output / "rollouts.jsonl").read_bytes().splitlines()) == 4


def test_resume_goes_on_with_a_verifier_that_was_not_edited(edited):
    edited.collect(2)
    edited.edit("0.0")
    (edited.folder / "test_graded.py").write_text("def test_nothing(): pass\n")
    assert edited.collect(4, resume=True).metrics["counts"]["completed"] == 8


def test_resume_refuses_other_settings_of_a_verifier(edited):
    settings = SOURCE.replace("REWARD", "self.config.reward").replace(
        "    async", "    class Config(Resources.Config):\n        reward: float = 0.5\n\n    async"
    )
    (edited.folder / "resources.py").write_text(settings)
    edited.collect(1)
    with pytest.raises(UserError, match=r"graded.settings.reward was 0.5, now 0.25.*--accept-new-verifier"):
        edited.collect(2, resume=True, settings={"resources.reward": 0.25})


def test_run_json_says_which_verifier_came_before(mixed):
    described = orjson.loads((mixed.output / "run.json").read_bytes())
    now = described["identity"]["environments"]["graded"]["verifier"]
    (earlier,) = described["earlier_verifiers"]
    assert now.keys() == earlier["environments"]["graded"]["verifier"].keys() == {"resources.py"}
    assert now != earlier["environments"]["graded"]["verifier"]
    assert mixed.collect(5, resume=True).metrics["counts"]["completed"] == 10, "the new one is now the run's"


def test_force_keeps_the_list_of_earlier_verifiers(mixed):
    mixed.edit("0.5")
    mixed.collect(5, resume=True, force=True)
    assert len(orjson.loads((mixed.output / "run.json").read_bytes())["earlier_verifiers"]) == 2


def test_a_group_never_has_two_verifiers(mixed):
    run = ludus.load(mixed.output)
    assert sorted([rollout.reward for rollout in group] for group in run.groups()) == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert all(len({member.reward for member in group.members}) == 1 for group in stored_groups(mixed.output))


def test_exported_groups_and_pairs_never_have_two_verifiers(mixed, tmp_path):
    exported = export(mixed.output, "grpo", tmp_path / "grpo.jsonl")
    rows = [orjson.loads(line) for line in (tmp_path / "grpo.jsonl").read_bytes().splitlines()]
    rewards: dict[str, set[float]] = {}
    for row in rows:
        rewards.setdefault(row["group"], set()).add(row["reward"])
    assert len(rewards) == 4
    assert all(len(of_group) == 1 for of_group in rewards.values())
    assert {row["advantage"] for row in rows} == {0.0}
    assert list(exported.several_verifiers) == ["graded"]
    assert export(mixed.output, "dpo", tmp_path / "dpo.jsonl").rows == 0, "no pair compares rewards of two verifiers"


def test_a_filter_for_one_verifier_leaves_one(mixed, tmp_path):
    receipt = next(iter(ludus.load(mixed.output))).receipt
    exported = mixed.command(
        "data", "export", "out", "--to", "sft", "-o", "sft.jsonl", "--receipt", receipt.partition(".")[0], "--json"
    )
    summary = orjson.loads(exported.stdout)
    assert (summary["used"], summary["several_verifiers"]) == (4, {})


@pytest.mark.parametrize("words", ["show out", "profile out", "compare out copy", "data export out --to sft -o x"])
def test_every_command_names_a_run_with_several_verifiers(mixed, words):
    shutil.copytree(mixed.output, mixed.output.with_name("copy"))
    result = mixed.command(*words.split())
    assert result.returncode == 0, result.stderr
    assert "2 verifiers judged rollouts of graded" in " ".join((result.stdout + result.stderr).split())


def test_a_printed_run_names_several_verifiers(mixed):
    assert "2 verifiers judged rollouts of graded" in repr(ludus.load(mixed.output))


def test_the_viewer_names_a_run_with_several_verifiers(mixed):
    with viewing(mixed.output) as viewer:
        visitor = Visitor(viewer)
        (run,) = visitor.ask("runs")["runs"]
        until_indexed(viewer)
        assert "2 verifiers judged rollouts of graded" in visitor.ask("run", run=run["key"])["warnings"][0]


def test_an_environment_edited_after_it_was_loaded_is_not_collected(edited):
    environment = ludus.Environment.load(edited.folder)
    edited.edit("1.0")
    with pytest.raises(UserError, match=r"resources.py has changed since it was imported. Load the environment again"):
        ludus.collect(environment, model=MODEL, input=edited.rows, output=edited.output)


def test_an_edited_file_beside_the_verifier_is_imported_again(edited):
    (edited.folder / "resources.py").write_text("from .marks import MARK\n" + SOURCE.replace("REWARD", "MARK"))
    rewards = []
    for mark in ("0.25", "0.75"):
        (edited.folder / "marks.py").write_text(f"MARK = {mark}\n")
        rewards.append(edited.collect(1, overwrite=True).rewards())
    assert rewards == [[0.25, 0.25], [0.75, 0.75]]
