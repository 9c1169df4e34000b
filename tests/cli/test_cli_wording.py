"""Errors are sentences without repetition, and their advice can be typed as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.models import open_model
from ludus.runtime.settings import checked, read_yaml

YAML = "name: bank\nresources: resources.py:Bank\n"
GOOD = """\
from ludus import Resources


class Bank(Resources):
    async def verify(self, task, response):
        return 1.0
"""


class Choice(BaseModel):
    mode: Literal["a", "b", "c"] | Literal["d"] = "a"


def bank(folder: Path, code: str = GOOD, yaml: str = YAML) -> Path:
    (folder / "bank").mkdir()
    (folder / "bank" / "environment.yaml").write_text(yaml)
    (folder / "bank" / "resources.py").write_text(code)
    return folder / "bank"


def test_the_advice_for_a_server_without_a_model_keeps_its_kind():
    with pytest.raises(UserError, match=r"Write it as vllm:http://127\.0\.0\.1:9#NAME"):
        open_model("vllm:http://127.0.0.1:9")


def test_choices_are_joined_with_commas_and_one_or():
    with pytest.raises(UserError, match="^mine.mode must be 'a', 'b', 'c' or 'd', not 'x'"):
        checked(Choice, {"mode": "x"}, "mine")


def test_a_missing_recording_is_named_once(tmp_path: Path):
    with pytest.raises(UserError) as caught:
        open_model(f"replay:{tmp_path}/none")
    assert str(caught.value).count("none") == 1
    assert "Errno" not in str(caught.value)
    assert "No such file" in str(caught.value)


def test_a_misspelled_verify_is_suggested_as_a_new_name(tmp_path: Path):
    with pytest.raises(UserError, match="Rename verfy to verify"):
        Environment.load(bank(tmp_path, GOOD.replace("verify", "verfy")))


def test_a_syntax_error_names_its_line_once(tmp_path: Path):
    with pytest.raises(UserError) as caught:
        Environment.load(bank(tmp_path, "x = (\n"))
    assert "resources.py:1: SyntaxError: " in str(caught.value)
    assert "line 1" not in str(caught.value)


def test_a_yaml_error_names_its_line_without_python_words(tmp_path: Path):
    (tmp_path / "bad.yaml").write_text("a: [1\nb: 2\n")
    with pytest.raises(UserError) as caught:
        read_yaml(tmp_path / "bad.yaml")
    assert "unicode string" not in str(caught.value)
    assert "bad.yaml is not valid YAML: line 2, column 2: " in str(caught.value)


def test_a_folder_that_does_not_exist_is_called_that(tmp_path: Path):
    with pytest.raises(UserError, match="nowhere does not exist"):
        Environment.load(f"{tmp_path}/nowhere")


def test_the_same_environment_twice_is_called_that(tmp_path: Path):
    folder = bank(tmp_path)
    with pytest.raises(UserError, match="bank is named twice") as caught:
        ludus.collect([folder, folder], model=ScriptedModel(["x"]), input=[])
    assert str(caught.value).count(str(folder)) <= 1
