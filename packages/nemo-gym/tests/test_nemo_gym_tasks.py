"""Rows become tasks: their prompts, their ids, the schema of their fields, and the files around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nemo_gym.deliverables import IGNORE_FILES, is_deliverable
from nemo_gym.path_utils import aggregate_metrics_path_for, failures_path_for, materialized_path_for
from nemo_gym.prompt import PromptConfig, apply_prompt_to_row, fill_prompt, load_prompt_config
from nemo_gym.skills import stage_skills
from nemo_gym.task_data import (
    TaskDataSchemaError,
    TaskDataValidator,
    find_server_dir,
    load_task_data_schema,
    normalize_task_fields,
    validate_jsonl_rows,
)
from nemo_gym.task_materialization import materialize_task
from pydantic import TypeAdapter

# --- files ---


def test_the_files_of_a_collection_lie_beside_its_rollouts():
    output = Path("results/run.v1.jsonl")
    assert failures_path_for(output) == Path("results/run.v1_failures.jsonl")
    assert aggregate_metrics_path_for(output) == Path("results/run.v1_aggregate_metrics.json")
    assert materialized_path_for(output) == Path("results/run.v1_materialized_inputs.jsonl")


def test_skills_are_copied_to_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "skills" / "sums").mkdir(parents=True)
    (tmp_path / "skills" / "sums" / "SKILL.md").write_text("add")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    stage_skills("skills", tmp_path / "out" / "skills")
    assert (tmp_path / "out" / "skills" / "sums" / "SKILL.md").read_text() == "add"
    with pytest.raises(FileExistsError):
        stage_skills(str(tmp_path / "skills"), tmp_path / "out" / "skills")
    for source in ("absent", "skills/sums/SKILL.md"):
        with pytest.raises(ValueError, match=source):
            stage_skills(source, tmp_path / "other")


def test_a_deliverable_is_a_file_that_is_no_record_of_the_run(tmp_path: Path):
    (tmp_path / "answer.txt").touch()
    (tmp_path / "log.txt").touch()
    (tmp_path / "folder").mkdir()
    assert [path.name for path in tmp_path.iterdir() if is_deliverable(path)] == ["answer.txt"]
    assert len(IGNORE_FILES) == 7


# --- prompt ---


def test_a_prompt_is_filled_by_the_format_language_of_python():
    config = PromptConfig(system="Be {tone}.", user="{{{question!r:>5}}} {options[1]}")
    row = {"tone": "brief", "question": "x", "options": ["a", "b"]}
    assert fill_prompt(config, row) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{  'x'} b"},
    ]
    assert [message["role"] for message in fill_prompt(PromptConfig(user="hi"), {})] == ["user"]
    with pytest.raises(KeyError, match="tone.*options, question"):
        fill_prompt(config, {"question": 1, "options": 2})


def test_a_row_gets_its_prompt_and_keeps_everything_else():
    row = {"question": "x", "responses_create_params": {"input": "old", "temperature": 1}}
    filled = apply_prompt_to_row(row, PromptConfig(user="{question}?"))
    assert filled["responses_create_params"] == {"input": [{"role": "user", "content": "x?"}], "temperature": 1}
    assert filled["question"] == "x"
    assert row["responses_create_params"] == {"input": "old", "temperature": 1}
    assert apply_prompt_to_row({}, PromptConfig(user="hi"))["responses_create_params"]["input"][0]["content"] == "hi"


def test_a_prompt_file_is_searched_in_the_roots_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "prompts" / "math.yaml"
    file.parent.mkdir()
    file.write_text("user: '{question}'\n")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    config = load_prompt_config("prompts/math.yaml")
    assert config == PromptConfig(user="{question}")
    assert load_prompt_config(str(file)) is config
    with pytest.raises(FileNotFoundError, match="absent.yaml"):
        load_prompt_config("absent.yaml")


def test_a_suite_reads_a_changed_prompt_file_after_clearing_the_cache(tmp_path: Path):
    file = tmp_path / "math.yaml"
    file.write_text("user: first")
    assert load_prompt_config(str(file)).user == "first"
    file.write_text("user: second")
    load_prompt_config.cache_clear()
    assert load_prompt_config(str(file)).user == "second"


# --- task_materialization ---


def test_a_row_is_materialized_under_its_own_id_or_its_index():
    row = {"problem_id": 7, "task_id": None, "question": "x", "agent_ref": {}, "task_source": "s", "skills_ref": {}}
    assert materialize_task({**row, "_ng_rollout_index": 1}, taskset="t") == {
        "task_id": {"taskset": "t", "task_id": "7"},
        "task_input": {"problem_id": 7, "task_id": None, "question": "x"},
    }
    assert materialize_task({"_ng_task_index": 4}, taskset="t", task_index=9)["task_id"]["task_id"] == "4"
    assert materialize_task({}, taskset="t", task_index=0)["task_id"]["task_id"] == "0"
    for index in (None, -1, True, "3"):
        with pytest.raises(ValueError, match="index"):
            materialize_task({}, taskset="t", task_index=index)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="materialized already"):
        materialize_task({"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}}, taskset="t")


# --- task_data ---

SCHEMA = """
from __future__ import annotations
from pydantic import BaseModel, ConfigDict, Field

class Part(BaseModel):
    size: int

class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")
    question: str
    part: Part | None = None
    answer: str | None = Field(default=None, json_schema_extra={"legacy_location": "verifier_metadata"})
"""


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TypeAdapter[Any]:
    folder = tmp_path / "resources_servers" / "sums"
    folder.mkdir(parents=True)
    (folder / "task_data.py").write_text(SCHEMA)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    server = find_server_dir("sums")
    assert server == folder
    schema = load_task_data_schema(server)
    assert schema is not None
    return schema


def test_a_schema_is_the_task_data_of_a_folder(tmp_path: Path):
    assert load_task_data_schema(tmp_path) is None
    assert find_server_dir("absent") is None
    for content in ("x = 1", "raise RuntimeError('no')", "TaskData = 5", "syntax error"):
        (tmp_path / "task_data.py").write_text(content)
        with pytest.raises(TaskDataSchemaError, match="task_data.py"):
            load_task_data_schema(tmp_path)
    (tmp_path / "task_data.py").write_text("TaskData = dict[str, int]")
    schema = load_task_data_schema(tmp_path)
    assert schema is not None
    assert schema.validate_python({"a": "1"}) == {"a": 1}


def test_task_fields_are_flattened_and_unequal_duplicates_are_conflicts():
    row = {
        "responses_create_params": {},
        "agent_ref": {},
        "task_source": "s",
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "a": 1,
        "verifier_metadata": {"a": 2, "b": 3, "c": 4},
        "task_data": {"b": 5, "c": 4, "d": 6},
    }
    assert normalize_task_fields(row) == ({"a": 1, "b": 3, "c": 4, "d": 6}, ["a", "b"])
    assert normalize_task_fields({"verifier_metadata": "text"}) == ({"verifier_metadata": "text"}, [])
    assert row["verifier_metadata"] == {"a": 2, "b": 3, "c": 4}


def test_a_dataset_is_checked_row_by_row(adapter: TypeAdapter[Any]):
    validator = TaskDataValidator("sums", adapter, "data.jsonl")
    validator.validate_row(0, {"question": "x", "verifier_metadata": {"answer": "1"}})
    validator.validate_row(1, {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"question": "x"}})
    assert validator.report.clean
    validator.validate_row(2, {"question": "x", "task_data": {}, "answer": "1"})
    assert validator.report.clean
    validator.validate_row(3, {"question": "x", "answer": "1", "extra": 1})
    validator.validate_row(4, {"question": "x", "task_data": {"question": "y"}})
    validator.validate_row(5, {"part": {"size": "many"}})
    report = validator.report
    assert (report.rows, report.error_rows, report.clean) == (6, 1, False)
    assert dict(report.unknown_keys) == {"extra": 1}
    assert dict(report.conflicting_keys) == {"question": 1}
    assert dict(report.misplaced_keys) == {"answer": 1}
    assert "row 5" in report.errors[0]
    for text in ("data.jsonl", "sums", "6 rows", "part.size", "unknown keys: extra", "misplaced keys: answer"):
        assert text in report.summary()


def test_a_file_keeps_the_texts_of_five_errors(adapter: TypeAdapter[Any]):
    lines = ['{"question": "x"}', "", "[1]", "{", *["{}"] * 5]
    report = validate_jsonl_rows("sums", adapter, "data.jsonl", lines)
    assert (report.rows, report.error_rows, len(report.errors)) == (8, 7, 5)
