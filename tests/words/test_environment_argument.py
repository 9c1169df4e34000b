"""`NAME:ARGUMENT`: one environment with many variants, and the arguments that a row may name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.folder import locate
from ludus.rescore.rescoring import rescore

YAML = """
name: family
resources: resources.py:Family
argument: member
row_argument: '[a-z]+'
settings: {member: nobody, size: 3}
datasets: [{name: example, path: rows.jsonl}]
"""
CODE = """
from ludus import Resources, ResourcesConfig, Verdict

class Family(Resources):
    class Config(ResourcesConfig):
        member: str
        size: int = 1

    config: Config

    async def verify(self, task, response):
        return Verdict(float(self.config.member in response.output_text), member=self.config.member)
"""


@pytest.fixture
def family(tmp_path: Path) -> Path:
    folder = tmp_path / "family"
    folder.mkdir()
    (folder / "environment.yaml").write_text(YAML)
    (folder / "resources.py").write_text(CODE)
    (folder / "rows.jsonl").write_text('{"responses_create_params": {"input": "Who?"}}\n' * 5)
    return folder


@pytest.fixture
def registered(family: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment `family`, registered by name as a package would do."""
    from ludus import folder

    known = {**folder.folders(), "family": family}
    monkeypatch.setattr(folder, "folders", lambda: known)
    return "family"


def settings_of(environment: Environment) -> dict[str, Any]:
    return environment.config.model_dump(include={"member", "size"})


def test_the_argument_becomes_a_setting_and_part_of_the_name(registered: str) -> None:
    environment = Environment.load("family:anna")
    assert environment.name == "family:anna"
    assert settings_of(environment) == {"member": "anna", "size": 3}
    assert settings_of(Environment.load("family")) == {"member": "nobody", "size": 3}


def test_only_the_first_colon_separates_name_and_argument(registered: str) -> None:
    assert Environment.load("family:package.module:Class").config.model_dump()["member"] == "package.module:Class"


def test_a_path_to_a_folder_takes_an_argument_too(family: Path) -> None:
    assert Environment.load(f"{family}:anna").name == "family:anna"
    assert Environment.load(f"{family}/environment.yaml").name == "family"


def test_a_colon_in_an_existing_path_is_part_of_the_path(family: Path) -> None:
    odd = family.rename(family.with_name("odd:name"))
    assert Environment.load(odd).name == "family"
    assert Environment.load(f"{odd}/environment.yaml").name == "family"
    assert locate(str(odd)) == (odd.resolve(), None)


def test_an_explicit_setting_overrides_the_argument(registered: str) -> None:
    environment = Environment.load("family:anna")
    environment.configure({"resources.member": "ben"})
    assert settings_of(environment)["member"] == "ben"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("mcqa:x", "environment mcqa takes no argument, and got 'x'. Write mcqa"),
        ("family:", "family: has no argument after the colon. Write family:MEMBER"),
        ("famly:anna", "unknown environment famly. Did you mean family?"),
        ("./famly:anna", "./famly does not exist"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(registered: str, spec: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        Environment.load(spec)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rescore_and_resume_find_an_environment_with_its_argument(registered: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ludus.collect("family:anna", model=ScriptedModel(["anna"]), output=run)
    row = json.loads((run / "rollouts.jsonl").read_text().splitlines()[0])
    assert row["agent_ref"]["name"] == "family:anna"
    assert rescore(run).counts == {"unchanged": 5}
    again = ludus.collect("family:anna", model=ScriptedModel(["anna"]), output=run, resume=True)
    assert again.metrics["counts"]["completed"] == 5
    with pytest.raises(UserError, match="describes a different run"):
        ludus.collect("family:ben", model=ScriptedModel(["anna"]), output=run, resume=True)


def test_rows_of_one_collection_may_have_different_arguments(registered: str) -> None:
    rows = [
        {"responses_create_params": {"input": "Who?"}, "agent_ref": {"name": name}}
        for name in ("family:anna", "family:ben", "family")
    ]
    result = ludus.collect(model=ScriptedModel(["anna"]), input=rows)
    found = {rollout.job.environment: rollout.reward for rollout in result.rollouts}
    assert found == {"family:anna": 1.0, "family:ben": 0.0, "family": 0.0}


@pytest.mark.parametrize("argument", ["os:system", "../x", "a/b", "ANNA", "", "a b", "a\n"])
def test_a_row_may_only_name_an_argument_that_row_argument_matches(registered: str, argument: str) -> None:
    row = {"responses_create_params": {"input": "Who?"}, "agent_ref": {"name": f"family:{argument}"}}
    with pytest.raises(UserError, match="a row may not name"):
        ludus.collect(model=ScriptedModel(["anna"]), input=[row])


def test_without_row_argument_a_row_may_not_name_an_argument(registered: str, family: Path) -> None:
    (family / "environment.yaml").write_text(YAML.replace("row_argument: '[a-z]+'\n", ""))
    with pytest.raises(UserError, match="a row may not name 'family:anna'"):
        Environment.named("family:anna")
    assert Environment.load("family:anna").name == "family:anna"


def test_a_row_may_not_name_an_environment_by_path(family: Path) -> None:
    for name in (str(family), "./family", "../family:anna", "", "family/environment.yaml"):
        with pytest.raises(UserError, match="is not the name of an environment"):
            Environment.named(name)
    with pytest.raises(UserError, match="unknown environment family"):
        Environment.named("family")


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("mcqa", "mcqa"),
        ("mcqa_simple_agent", "mcqa"),
        ("blackjack_gymnasium_agent", "blackjack"),
        ("example_multi_turn_gymnasium_agent", "example_multi_turn_gymnasium"),
        ("example_multi_turn_gymnasium", "example_multi_turn_gymnasium"),
    ],
)
def test_an_agent_name_from_public_rows_finds_its_environment(reference: str, name: str) -> None:
    assert Environment.named(reference).name == name
