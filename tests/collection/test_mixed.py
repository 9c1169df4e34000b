"""One collection of several environments: own folders, settings and metrics of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest

import ludus
from ludus import ScriptedModel, UserError

RESOURCES = """\
import ludus
from ludus import Resources


class Quiz(Resources):
    class Config(ludus.ResourcesConfig):
        reward: float = 1.0

    async def verify(self, task, response):
        return self.config.reward


def stream(seed, start=0):
    while True:
        yield {"responses_create_params": {"input": str(start)}}
        start += 1
"""


def make(folder: Path, rows: int, *, agent_names: str = "[]", dataset: str | None = None) -> Path:
    folder.mkdir()
    dataset = dataset or "{name: example, path: rows.jsonl}"
    yaml = f"name: {folder.name}\nresources: resources.py:Quiz\nagent_names: {agent_names}\ndatasets: [{dataset}]\n"
    (folder / "environment.yaml").write_text(yaml)
    (folder / "resources.py").write_text(RESOURCES)
    lines = [json.dumps({"responses_create_params": {"input": f"{folder.name} {n}"}}) for n in range(rows)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [make(tmp_path / "bank", 3, agent_names="[bank_of_rome]"), make(tmp_path / "wordle", 2)]


def model() -> ScriptedModel:
    return ScriptedModel(["done"])


def ludus_command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "ludus", *words]
    return forked.run(command, cwd=cwd, capture_output=True, text=True, env=variables, encoding="utf-8")


def prompts(result: Any) -> list[tuple[str, str]]:
    return [(each.job.environment, each.job.row["responses_create_params"]["input"]) for each in result.rollouts]


def test_the_rows_of_several_environments_are_collected_in_turns(folders: list[Path]):
    result = ludus.collect(folders, model=model(), concurrency=1)
    assert prompts(result) == [
        ("bank", "bank 0"),
        ("wordle", "wordle 0"),
        ("bank", "bank 1"),
        ("wordle", "wordle 1"),
        ("bank", "bank 2"),
    ]


def test_a_limit_is_for_the_rows_of_each_environment(folders: list[Path], tmp_path: Path):
    endless = make(tmp_path / "endless", 0, dataset="{name: example, generate: 'resources.py:stream'}")
    result = ludus.collect([*folders, endless], model=model(), limit=1, settings={"endless.data.start": 7})
    assert sorted(prompts(result)) == [("bank", "bank 0"), ("endless", "7"), ("wordle", "wordle 0")]
    with pytest.raises(UserError, match="dataset example is endless. Say how many rows to use: --limit N"):
        ludus.collect([*folders, endless], model=model())


def test_metrics_are_given_for_each_environment(folders: list[Path]):
    settings = {"wordle.resources.reward": 0.5, "wordle.pass_reward": 0.5}
    metrics = ludus.collect(folders, model=model(), repeats=2, settings=settings).metrics
    bank, wordle = metrics["environments"]["bank"], metrics["environments"]["wordle"]
    assert (bank["counts"]["completed"], wordle["counts"]["completed"]) == (6, 4)
    assert (bank["reward"]["mean"], wordle["reward"]["mean"], metrics["reward"]["mean"]) == (1.0, 0.5, 0.8)
    assert (bank["pass_reward"], wordle["pass_reward"], metrics["pass_reward"]) == (1.0, 0.5, None)
    assert bank["pass@k"]["2"] == wordle["pass@k"]["2"] == metrics["pass@k"]["2"] == 1.0


def test_a_collection_of_one_environment_does_not_repeat_its_metrics(folders: list[Path]):
    assert ludus.collect(folders[0], model=model()).metrics["environments"] == {}


def test_rows_choose_among_the_named_environments_and_the_built_in_ones(folders: list[Path]):
    names = ["bank", "bank_simple_agent", "bank_of_rome", "wordle", "example_single_tool_call"]
    rows = [{"responses_create_params": {"input": name}, "agent_ref": {"name": name}} for name in names]
    result = ludus.collect(folders, model=model(), input=rows, concurrency=1)
    assert [each.job.environment for each in result.rollouts] == [
        "bank",
        "bank",
        "bank",
        "wordle",
        "example_single_tool_call",
    ]
    assert set(result.metrics["environments"]) == {"bank", "wordle", "example_single_tool_call"}
    with pytest.raises(UserError, match="row 1: unknown environment wordel. Did you mean wordle?"):
        ludus.collect(folders, model=model(), input=[{**rows[0], "agent_ref": {"name": "wordel"}}])


def test_a_row_without_a_name_needs_a_single_environment(folders: list[Path]):
    rows: list[dict[str, Any]] = [{"responses_create_params": {"input": "x"}}]
    assert len(ludus.collect(folders[:1], model=model(), input=rows).rollouts) == 1
    with pytest.raises(UserError, match=r"row 1: agent_ref: the row names no environment. Add agent_ref: "):
        ludus.collect(folders, model=model(), input=rows)


def test_a_setting_without_a_name_is_for_all_environments(folders: list[Path]):
    metrics = ludus.collect(folders, model=model(), settings={"resources.reward": 0.5}).metrics
    assert {each["reward"]["mean"] for each in metrics["environments"].values()} == {0.5}


def test_the_setting_of_one_environment_overrides_that_of_all(folders: list[Path]):
    settings = {"bank.resources.reward": 0.25, "resources.reward": 0.5}
    metrics = ludus.collect(folders, model=model(), settings=settings).metrics
    assert {name: each["reward"]["mean"] for name, each in metrics["environments"].items()} == {
        "bank": 0.25,
        "wordle": 0.5,
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"wordel.resources.reward": 1}, "wordel.resources.reward: no environment wordel in this run. Did you mean wo"),
        ({"bank.resources.prize": 1}, "bank: resources has no setting prize. Known: compat, reward."),
        ({"resources.prize": 1}, "bank: resources has no setting prize. Known: compat, reward."),
        ({"bank.resource.reward": 1}, "unknown setting bank.resource.reward"),
        ({"bank.model.temperature": 1}, "unknown setting bank.model.temperature"),
    ],
)
def test_a_setting_that_fits_no_environment_is_refused(folders: list[Path], settings: dict[str, Any], says: str):
    with pytest.raises(UserError) as raised:
        ludus.collect(folders, model=model(), settings=settings)
    assert says in str(raised.value)


def test_the_setting_of_an_environment_that_rows_name_works_without_naming_folders():
    rows = [
        {"responses_create_params": {"input": "x"}, "agent_ref": {"name": name}}
        for name in ("example_single_tool_call", "example_multi_step")
    ]
    rows[1] |= {"id": 1, "expected_synonym_values": [1], "expected_synonyms": ["a"], "minefield_label": "b"}
    rows[1] |= {"minefield_label_value": 2}
    settings = {"example_single_tool_call.agent.max_steps": 5}
    result = ludus.collect(model=model(), input=rows, settings=settings)
    assert result.metrics["counts"]["dispatched"] == 2
    with pytest.raises(UserError, match="no environment mcqa in this run"):
        ludus.collect(model=model(), input=rows, settings={"mcqa.agent.max_steps": 5})


def test_two_environments_of_the_same_name_are_refused(folders: list[Path], tmp_path: Path):
    (tmp_path / "other").mkdir()
    twin = make(tmp_path / "other" / "bank", 1)
    with pytest.raises(UserError, match="two environments are called bank: "):
        ludus.collect([*folders, twin], model=model())


def test_several_environments_on_one_server_are_refused(folders: list[Path]):
    with pytest.raises(UserError, match="a server has one environment, and 2 are named"):
        ludus.collect(folders, model=model(), resources="http://127.0.0.1:9")


def test_the_command_line_mixes_folders_and_shows_a_table_for_each(folders: list[Path], tmp_path: Path):
    (tmp_path / "script.yaml").write_text("- done\n")
    words = ["collect", "--env", "./bank", "--env", "./wordle", "--model", "scripted:script.yaml", "--output", "out"]
    done = ludus_command(*words, "--set", "wordle.resources.reward=0.5", "--repeats", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "bank, wordle with scripted:script.yaml" in done.stdout
    lines = [" ".join(line.replace("│", " ").split()) for line in done.stdout.splitlines()]
    assert "bank 6 0 0 1.000 1.000 1.000 reward ≥ 1" in lines
    assert "wordle 4 0 0 0.500 0.000 0.000 reward ≥ 1" in lines
    more = ("--set", "wordle.resources.reward=0.5", "--repeats", "3", "--resume", "--json")
    again = ludus_command(*words, *more, cwd=tmp_path)
    metrics = json.loads(again.stdout)
    assert metrics["environments"]["wordle"]["counts"]["completed"] == 6


def test_a_bad_row_of_one_environment_is_reported_with_its_file_and_line(folders: list[Path]):
    with (folders[1] / "rows.jsonl").open("a") as file:
        file.write('{"responses_create_params": {}}\n')
    with pytest.raises(UserError, match=r"wordle/rows\.jsonl:3: responses_create_params"):
        ludus.collect(folders, model=model())


def mixed(tmp_path: Path, mix: dict[str, float], **options: Any) -> list[str]:
    folders = [make(tmp_path / "bank", 30), make(tmp_path / "wordle", 10)]
    done = ludus.collect(folders, model=model(), mix=mix, concurrency=1, **options)
    return [rollout.task.agent_ref["name"] for rollout in done.rollouts]


def test_weights_say_how_many_rows_of_each_environment_are_played(tmp_path: Path):
    names = mixed(tmp_path, {"bank": 3, "wordle": 2})
    # It ends at the turn for which wordle has no more row.
    assert (names.count("bank"), names.count("wordle")) == (16, 10)
    assert names[:5].count("bank") == 3


def test_the_limit_of_a_weighted_collection_is_for_all_rows(tmp_path: Path):
    names = mixed(tmp_path, {"bank": 3, "wordle": 1}, limit=8)
    assert (names.count("bank"), names.count("wordle")) == (6, 2)


def test_endless_rows_can_be_weighted_with_a_limit(tmp_path: Path):
    generated = "{name: example, generate: resources.py:stream}"
    folders = [make(tmp_path / "bank", 30), make(tmp_path / "endless", 0, dataset=generated)]
    weights = {"bank": 1, "endless": 1}
    with pytest.raises(UserError, match="is endless"):
        ludus.collect(folders, model=model(), mix=weights)
    done = ludus.collect(folders, model=model(), mix=weights, limit=10)
    assert [each["counts"]["completed"] for each in done.metrics["environments"].values()] == [5, 5]


def test_a_weighted_collection_can_be_resumed(folders: list[Path], tmp_path: Path):
    words = ["--env", "bank", "--env", "wordle", "--mix", "bank=1,wordle=1", "-m", "scripted:s.yaml", "-o", "run"]
    (tmp_path / "s.yaml").write_text("- done\n")
    first = ludus_command("collect", *words, "--json", cwd=tmp_path)
    assert json.loads(first.stdout)["counts"]["completed"] == 5, first.stderr
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["options"]["mix"] == {"bank": 1.0, "wordle": 1.0}
    again = ludus_command("collect", *words, "--resume", "--repeats", "2", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["counts"]["completed"] == 10, again.stderr
    other = ludus_command("collect", *words[:5], "bank=2,wordle=1", *words[6:], "--resume", cwd=tmp_path)
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)


def test_weights_of_rows_in_a_file_are_refused(folders: list[Path]):
    with pytest.raises(UserError, match="ludus data prepare --mix"):
        ludus.collect(folders, model=model(), mix={"bank": 1, "wordle": 1}, input=[])
    with pytest.raises(UserError, match="two environments or more"):
        ludus.collect(folders[0], model=model(), mix={"bank": 1})
