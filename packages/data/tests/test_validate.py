"""`ludus data validate` reports every bad row with file, line, field and reason, and warns of probable mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from data_rows import command, ludus_command, row, write
from ludus_data.validate import SHOWN, validate

import ludus
from ludus import Resources, UserError
from ludus.cli.new import write as new_environment
from ludus.data.rows import Rows


class Quiz(Resources):
    class Task(ludus.Task):
        expected_answer: str | None = None
        level: int = 1

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


def test_every_bad_row_is_reported_with_file_line_field_and_reason(tmp_path: Path):
    rows = [row(), b"{", row(level="x", expected_answer=3), b"[]", {"expected_answer": "B"}, row()]
    report = validate([write(tmp_path / "rows.jsonl", *rows)], [Quiz])
    assert (report.rows, report.bad_rows, report.problem_count, report.environments) == (6, 4, 5, {"Quiz": 2})
    found = [(each["line"], each["field"], each["reason"]) for each in report.as_json()["problems"]]
    assert found == [
        (2, "row", found[0][2]),
        (3, "expected_answer", "expected_answer must be text, not 3"),
        (3, "level", "level must be a whole number, not 'x'"),
        (4, "row", "not a JSON object"),
        (5, "responses_create_params", "responses_create_params is missing"),
    ]
    assert found[0][2].startswith("not JSON")
    assert {each["file"] for each in report.as_json()["problems"]} == {str(tmp_path / "rows.jsonl")}


@pytest.mark.parametrize("bad", [b"{", row(level="x"), {"messages": []}, b'{"a":' + b"[" * 400 + b"]" * 400 + b"}"])
def test_a_collection_refuses_a_bad_row_in_the_same_words(tmp_path: Path, bad: Any):
    path = write(tmp_path / "rows.jsonl", bad)
    (problem,) = validate([path], [Quiz]).problems[:1]
    with pytest.raises(UserError) as refused:
        Rows(path, Quiz.Task.model_validate).survey()
    assert str(refused.value) == f"{problem.where}: {problem.reason}. {problem.hint}"


def test_all_problems_are_counted_and_a_hundred_kept(tmp_path: Path):
    report = validate([write(tmp_path / "rows.jsonl", *[row(level="x")] * 250)], [Quiz])
    assert (report.bad_rows, report.problem_count, len(report.problems)) == (250, 250, SHOWN)


def test_a_row_without_an_environment_blames_agent_ref(tmp_path: Path):
    unknown = row(agent_ref={"name": "nowhere_at_all"})
    report = validate([write(tmp_path / "rows.jsonl", row(), unknown, row(options=[], agent_ref={"name": "mcqa"}))])
    assert [each.field for each in report.problems[:2]] == ["agent_ref", "agent_ref"]
    assert "names no environment" in report.problems[0].reason
    assert "nowhere_at_all" in report.problems[1].reason


def test_typos_missing_gold_and_answers_in_the_prompt_are_warnings(tmp_path: Path):
    typo = row()
    typo["responses_create_params"]["temperatur"] = 1.0
    rows = [
        typo,
        row(expected_answer=" "),
        row(expected_answer=None),
        row("Who wrote Emma? It was Jane Austen.", expected_answer="jane austen"),
        row("The capital is Parisian", expected_answer="Paris"),  # no whole word
        row("Choose Paris or Rome", expected_answer="Paris", options=["Paris", "Rome"]),
        row("2 + 1200 = ?", expected_answer="1200"),  # a short number stands there by chance
    ]
    report = validate([write(tmp_path / "rows.jsonl", *rows)], [Quiz])
    assert report.bad_rows == 0
    assert [each for each in report.typos if "temperatur is unknown" in each]
    found = {each.kind: (each.rows, each.where.rpartition(":")[2], each.message) for each in report.warnings}
    assert found == {
        "gold_missing": (2, "2", "expected_answer is empty"),
        "answer_in_prompt": (1, "4", "expected_answer is in the prompt: 'jane austen'"),
    }


def test_an_environment_that_declares_no_answer_lacks_none(tmp_path: Path):
    class Free(Resources):
        async def verify(self, task: Any, response: Any) -> float:
            return 1.0

    assert not validate([write(tmp_path / "rows.jsonl", {"responses_create_params": {"input": "x"}})], [Free]).warnings


def test_the_datasets_of_an_environment_are_the_default():
    report = validate([], ["mcqa"])
    assert report.bad_rows == 0
    assert report.rows == report.environments["mcqa"] >= 5


def test_no_file_or_an_empty_file_is_a_mistake(tmp_path: Path):
    with pytest.raises(UserError, match="no file of rows"):
        validate([])
    with pytest.raises(UserError, match="holds no rows"):
        validate([write(tmp_path / "rows.jsonl")], [Quiz])


def test_the_command_exits_with_1_for_bad_rows_and_2_for_a_mistake(tmp_path: Path):
    good = {**row("Which?"), "options": [{"A": "x"}, {"B": "y"}], "agent_ref": {"name": "mcqa"}}
    write(tmp_path / "good.jsonl", good)
    write(tmp_path / "bad.jsonl", good, {**good, "options": 5})
    done = command(tmp_path, "validate", "good.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert "all rows are good" in done.stdout
    done = command(tmp_path, "validate", "good.jsonl", "bad.jsonl")
    assert done.returncode == 1
    assert "bad.jsonl:2: options must be a list" in done.stdout
    done = command(tmp_path, "validate", "bad.jsonl", "--json")
    assert (done.returncode, json.loads(done.stdout)["problems"][0]["line"]) == (1, 2)
    done = command(tmp_path, "validate", "nowhere.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("words", [("data", "validate", "--env"), ("data", "prepare", "--output", "out", "--env")])
def test_a_missing_dataset_is_named_in_the_words_of_collect(tmp_path: Path, words: tuple[str, ...]):
    new_environment(tmp_path / "shop", "shop")
    (tmp_path / "shop" / "data" / "example.jsonl").unlink()
    told = ludus_command(tmp_path, "collect", "./shop", "--model", "http://127.0.0.1:9/v1#x", "--output", "run")
    assert "there is no file" in told.stderr
    assert "correct datasets.example.path in" in told.stderr
    assert ludus_command(tmp_path, *words, "./shop") == told
