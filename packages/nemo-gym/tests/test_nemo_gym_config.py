"""Files, `env.yaml`, a dictionary given in Python and the command line are merged into one configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ludus_nemo_gym.config import read_config

from ludus import UserError

MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the working directory: `write("a.yaml", {...})`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)

    def make(name: str, content: Any) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return name

    return make


def server(kind: str = "resources_servers", implementation: str = "mcqa", **fields: Any) -> dict[str, Any]:
    return {kind: {implementation: {"entrypoint": "app.py", **fields}}}


def read(*arguments: str, **options: Any) -> dict[str, Any]:
    return read_config(arguments, check=False, **options).tree


def test_a_file_overrides_the_files_it_includes_and_a_later_file_an_earlier(write: Write):
    write("base.yaml", {"a": 1, "b": 1, "c": 1, "m": {"x": 1, "y": 1}})
    write("one.yaml", {"config_paths": ["base.yaml"], "b": 2, "c": 2, "m": {"y": 2}})
    write("two.yaml", {"c": 3})
    tree = read("+config_paths=[one.yaml,two.yaml]")
    assert tree == {
        "a": 1,
        "b": 2,
        "c": 3,
        "m": {"x": 1, "y": 2},
        "config_paths": ["base.yaml", "one.yaml", "two.yaml"],
    }


def test_a_file_that_two_files_include_is_merged_once(write: Write):
    write("common.yaml", {"a": 0})
    write("one.yaml", {"config_paths": ["common.yaml"], "a": 1})
    write("two.yaml", {"config_paths": ["./common.yaml"], "b": 2})
    assert read("+config_paths=[one.yaml,two.yaml]")["a"] == 1


def test_priority_is_files_then_env_yaml_then_the_dictionary_then_the_command_line(write: Write):
    write("file.yaml", {"a": "file", "b": "file", "c": "file", "d": "file"})
    write("env.yaml", {"b": "env", "c": "env", "d": "env", "config_paths": ["file.yaml"]})
    tree = read("d=cli", initial={"c": "dictionary", "d": "dictionary"})
    assert [tree[key] for key in "abcd"] == ["file", "env", "dictionary", "cli"]


def test_config_paths_on_the_command_line_replace_those_of_env_yaml(write: Write):
    write("a.yaml", {"x": "a"})
    write("b.yaml", {"x": "b"})
    write("env.yaml", {"config_paths": ["a.yaml"]})
    assert read("+config_paths=[b.yaml]")["x"] == "b"


def test_another_file_can_take_the_place_of_env_yaml(write: Write, tmp_path: Path):
    write("env.yaml", {"x": "here"})
    write("other.yaml", {"x": "there"})
    assert read(env_file=tmp_path / "other.yaml") == {"x": "there"}


def test_a_file_that_includes_itself_is_an_error(write: Write):
    write("a.yaml", {"config_paths": ["b.yaml"]})
    write("b.yaml", {"config_paths": ["a.yaml"]})
    with pytest.raises(UserError, match=r"a.yaml includes itself: a.yaml -> b.yaml -> a.yaml"):
        read("+config_paths=[a.yaml]")


def test_extra_roots_are_searched_before_the_working_directory(write: Write, tmp_path: Path, monkeypatch: Any):
    write("far/a.yaml", {"x": "far"})
    write("a.yaml", {"x": "near"})
    write("b.yaml", {"y": "near"})
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", f"{tmp_path / 'nowhere'}:{tmp_path / 'far'}")
    assert read("+config_paths=[a.yaml,b.yaml]") | {"config_paths": 0} == {"x": "far", "y": "near", "config_paths": 0}


def test_a_file_on_disk_is_used_instead_of_a_built_in_one(write: Write):
    write("resources_servers/mcqa/configs/mcqa.yaml", {"mine": True})
    assert read("+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]")["mine"] is True


def test_config_paths_may_contain_interpolations(write: Write):
    write("a.yaml", {"x": 1})
    assert read("+which=a", "+config_paths=['${which}.yaml']")["x"] == 1


def test_the_error_for_a_missing_file_names_the_searched_folders_and_the_including_file(write: Write, tmp_path: Path):
    write("a.yaml", {"config_paths": ["b.yaml"]})
    with pytest.raises(UserError, match=rf"no config b.yaml \(named in a.yaml\) in {tmp_path}"):
        read("+config_paths=[a.yaml]")


def test_yaml_is_read_as_omegaconf_reads_it(write: Write):
    write("a.yaml", "lr: 1e-3\nday: 2025-01-02\n1: one\nflag: yes\n")
    tree = read("+config_paths=[a.yaml]")
    assert tree | {"config_paths": 0} == {"lr": 0.001, "day": "2025-01-02", "1": "one", "flag": True, "config_paths": 0}


@pytest.mark.parametrize("text", ["a: [1", "a: 1\na: 2", "- 1", "a: \x00", "\tb: 1", "? [a]\n: 1"])
def test_the_error_for_invalid_yaml_does_not_quote_the_file(write: Write, text: str):
    write("env.yaml", f"policy_api_key: sk-secret\n{text}\n" if not text.startswith("-") else text)
    with pytest.raises(UserError, match=r"env.yaml") as caught:
        read()
    assert "sk-secret" not in str(caught.value)


def test_three_question_marks_do_not_replace_a_value(write: Write):
    write("a.yaml", {"x": 1})
    write("b.yaml", {"x": "???", "y": "???"})
    tree = read("+config_paths=[a.yaml,b.yaml]")
    assert (tree["x"], tree["y"]) == (1, "???")


def test_one_error_lists_every_missing_value_with_what_to_type(write: Write):
    write("a.yaml", {"judge": server(model={"name": "???"}, key="${no_such_key}", home="${oc.env:LUDUS_NOT_SET}")})
    with pytest.raises(UserError) as caught:
        read_config([f"+config_paths=[a.yaml,{MODEL}]", "+policy_base_url=http://h/v1"])
    text = str(caught.value)
    assert "Write policy_api_key into env.yaml, or set POLICY_API_KEY" in text
    for name in ("no_such_key", "policy_model_name", "judge.resources_servers.mcqa.model.name"):
        assert f"'++{name}=VALUE'" in text
    assert "Set LUDUS_NOT_SET" in text
    assert "policy_base_url" not in text
    assert "\n" not in text


def test_values_of_env_yaml_reach_the_model_and_the_key_is_not_shown(write: Write):
    write("env.yaml", {"policy_base_url": "http://h/v1", "policy_api_key": "sk-12345678", "policy_model_name": "m"})
    config = read_config([f"+config_paths=[{MODEL}]"])
    block = config.tree["policy_model"]["responses_api_models"]["openai_model"]
    assert block == {
        "entrypoint": "app.py",
        "openai_base_url": "http://h/v1",
        "openai_api_key": "sk-12345678",
        "openai_model": "m",
    }
    assert "sk-12345678" not in repr(config)
    assert "sk-12345678" not in str(config.public())


def test_an_override_can_set_a_nested_value_of_a_server(write: Write):
    config = read_config(
        ["+config_paths=[resources_servers/mcqa/configs/resources_only.yaml]", "mcqa.x.y=1"], check=False
    )
    assert config.tree["mcqa"]["x"] == {"y": 1}


def test_directives_and_overrides_work_across_files(write: Write):
    write("a.yaml", {"base": server(grading_mode="strict"), "mine": "${inherit_from:base}"})
    tree = read("+config_paths=[a.yaml]", "+mine.resources_servers.mcqa.port=4000")
    assert "base" not in tree
    assert tree["mine"] == server(grading_mode="strict", port=4000)


def test_a_tilde_deletes_a_key_of_the_merged_configuration(write: Write):
    write("a.yaml", {"base": {"x": 1}, "copy": {"_copy": "base", "y": {"z": 2, "w": 3}}})
    tree = read("+config_paths=[a.yaml]", "~base", "~copy.y.z", "+v=4")
    assert tree | {"config_paths": 0} == {"copy": {"x": 1, "y": {"w": 3}}, "v": 4, "config_paths": 0}
    with pytest.raises(UserError, match=r"~bas: the configuration has no bas. Did you mean base\?"):
        read("+config_paths=[a.yaml]", "~bas")


def test_a_mapping_merged_over_an_interpolation_extends_the_mapping_it_names(write: Write):
    write("a.yaml", {"base": {"x": 1, "y": 1}, "mine": "${base}"})
    assert read("+config_paths=[a.yaml]", "+mine.y=2")["mine"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("content", ["a: {b: 'sk-secret${'}", "a: !!set {sk-secret}", "null: sk-secret"])
def test_the_error_for_a_value_that_omegaconf_refuses_names_the_file_but_not_the_value(write: Write, content: str):
    write("env.yaml", content)
    with pytest.raises(UserError, match=r"^env.yaml: ") as caught:
        read()
    assert "sk-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"a": {"resource_servers": {"mcqa": {}}}}, "a.resource_servers should be resources_servers"),
        ({"a": {"resources_servers": {}}}, "a.resources_servers names no implementation"),
        ({"a": {"resources_servers": {"x": {}, "y": {}}}}, "a.resources_servers has two implementations, x and y"),
        ({"a": {"resources_servers": {"x": 1}}}, "a.resources_servers.x must hold a mapping"),
        ({"a": {"resources_servers": {"x": {}}, "responses_api_models": {"x": {}}}}, "a is a server of two kinds"),
        ({"a": server(domain="maths")}, r"a: there is no domain maths. Did you mean math\?"),
        ({"a": server(port=0)}, "a: port 0 is not a port from 1 to 65535"),
        ({"a": server(num_workers="many")}, "a: num_workers 'many' is not a number from 1 on"),
    ],
)
def test_a_malformed_server_is_reported(write: Write, content: dict[str, Any], problem: str):
    write("a.yaml", content)
    with pytest.raises(UserError, match=problem):
        read_config(["+config_paths=[a.yaml]"])
    config = read_config(["+config_paths=[a.yaml]", "+error_on_almost_servers=false"])
    assert len(config.notes) == 1
    assert config.servers == []


def test_other_mappings_are_not_servers(write: Write):
    write("a.yaml", {"sandbox": {"docker": {"image": "x"}}, "head_server": {"host": "h", "port": 1}})
    assert read_config(["+config_paths=[a.yaml]"]).servers == []


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ({"type": "resources_servers", "name": "mcqq"}, r"there is no resources server mcqq. Did you mean mcqa\?"),
        ({"type": "responses_api_models", "name": "mcqa"}, "mcqa is one of resources_servers, not of"),
        ({"type": "responses_api_models", "name": "policy_model"}, "Add one to config_paths"),
        ({"type": "resources_servers", "name": "gone"}, "gone was moved to mcqa; use _copy there"),
    ],
)
def test_a_reference_to_a_missing_server_is_reported(write: Write, reference: dict[str, Any], problem: str):
    agent = server("responses_api_agents", "simple_agent", deep=[{"resources_server": reference}])
    write("a.yaml", {"gone": server(), "mcqa": {"_inherit_from": "gone"}, "agent": agent})
    with pytest.raises(UserError, match=problem):
        read_config(["+config_paths=[a.yaml]"])


def test_the_dictionary_may_be_any_mapping(write: Write):
    from types import MappingProxyType

    given = MappingProxyType({"policy_base_url": ("http://a/v1", "http://b/v1"), "head_server": {"port": 1}})
    assert read(initial=given) == {"policy_base_url": ["http://a/v1", "http://b/v1"], "head_server": {"port": 1}}
