"""Flags of `ludus data convert` are never ignored: templates, mappings, dropped fields, standard output."""

from __future__ import annotations

import json

import orjson
import pytest
from click.testing import CliRunner
from ludus_data.commands import data as commands
from ludus_data.convert import convert, load_mapping
from ludus_data.export.exporting import export
from ludus_data.mapping import RowMapping
from rollout_files import rollout, write

from ludus import UserError

SUM = {"question": "1 + 1?", "answer": "so #### 2", "level": "easy"}
QUIZ = {"question": "Hi?", "choices": ["a", "b"], "answer": 1}


def converted(tmp_path, row, mapping=None):
    (tmp_path / "in.jsonl").write_bytes(orjson.dumps(row))
    done = convert(tmp_path / "in.jsonl", tmp_path / "out.jsonl", mapping, overwrite=True)
    return done, json.loads((tmp_path / "out.jsonl").read_bytes())


def prompt_of(task):
    return [(message["role"], message["content"]) for message in task["responses_create_params"]["input"]]


def run(tmp_path, row, *flags):
    (tmp_path / "in.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    return CliRunner().invoke(commands, ["convert", str(tmp_path / "in.jsonl"), *flags])


def test_a_template_is_applied_beside_a_field_that_is_mapped_to_the_prompt(tmp_path):
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text('map: {question: prompt, answer: gold}\nprompt: {system: S, user: "Solve: {question}"}\n')
    _, task = converted(tmp_path, SUM, load_mapping(mapping))
    assert prompt_of(task) == [("system", "S"), ("user", "Solve: 1 + 1?")]
    assert {key: value for key, value in task.items() if key != "responses_create_params"} == {
        "gold": "so #### 2",
        "level": "easy",
    }
    flags = ["--map", "question=prompt", "--prompt", "Q: {question} ({level})", "--output", str(tmp_path / "flags")]
    assert run(tmp_path, SUM, *flags).exit_code == 0
    assert prompt_of(json.loads((tmp_path / "flags").read_bytes())) == [("user", "Q: 1 + 1? (easy)")]


def test_a_template_keeps_the_detected_layout(tmp_path):
    done, task = converted(tmp_path, SUM, RowMapping(prompt={"user": "Solve: {question}"}))
    assert (done.layout, task["expected_answer"], prompt_of(task)) == ("gsm8k", "2", [("user", "Solve: 1 + 1?")])


def test_a_template_makes_tasks_of_rows_without_a_known_layout(tmp_path):
    done, task = converted(tmp_path, {"foo": "x"}, RowMapping(prompt={"user": "Say {foo}"}))
    assert (done.layout, prompt_of(task), task["foo"]) == (None, [("user", "Say x")], "x")


def test_a_template_replaces_the_prompt_of_a_task(tmp_path):
    row = {"responses_create_params": {"input": "old", "temperature": 0.5}, "topic": "cats"}
    _, task = converted(tmp_path, row, RowMapping(prompt={"user": "About {topic}"}))
    assert prompt_of(task) == [("user", "About cats")]
    assert task["responses_create_params"]["temperature"] == 0.5


@pytest.mark.parametrize(
    ("template", "asked"),
    [("Q: {question}", "Q: Hi?\n\nA) a\nB) b"), ("{question} {choices[0]}/{choices[1]}", "Hi? a/b")],
)
def test_options_follow_a_template_that_does_not_use_them(tmp_path, template, asked):
    _, task = converted(tmp_path, QUIZ, RowMapping(prompt={"user": template}))
    assert prompt_of(task) == [("user", asked)]
    assert (task["expected_answer"], task["options"]) == ("B", [{"A": "a"}, {"B": "b"}])


def test_a_template_keeps_the_answer_and_the_tools_of_a_conversation(tmp_path):
    said = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes."}]
    row = {"messages": said, "tools": [{"type": "function", "name": "look"}], "topic": "cats"}
    _, task = converted(tmp_path, row, RowMapping(prompt={"user": "About {topic}"}))
    assert (prompt_of(task), task["expected_answer"]) == ([("user", "About cats")], "Yes.")
    assert task["responses_create_params"]["tools"][0]["name"] == "look"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--map", "question=prompt", "--map", "level=prompt"], "question and level are both mapped to prompt."),
        (["--map", "question=prompt", "--map", "question=topic"], "--map names question twice."),
        (["--map", "question=prompt", "--drop", "question"], "question is mapped to prompt and dropped."),
    ],
)
def test_a_mapping_of_which_a_part_would_be_ignored_is_one_error_line(tmp_path, flags, says):
    done = run(tmp_path, SUM, *flags, "--output", str(tmp_path / "out.jsonl"))
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(says)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_field_that_the_layout_maps_can_be_dropped(tmp_path):
    done, task = converted(tmp_path, SUM, RowMapping(drop=["answer"]))
    assert done.layout == "gsm8k"
    assert task == {"responses_create_params": {"input": [{"role": "user", "content": "1 + 1?"}]}, "level": "easy"}


@pytest.mark.parametrize("content", ["Yes.", [{"type": "text", "text": "Ye"}, {"type": "text", "text": "s."}]])
def test_a_completion_of_messages_is_recognised_and_its_text_taken(tmp_path, content):
    row = {"prompt": [{"role": "user", "content": "Hi?"}], "completion": [{"role": "assistant", "content": content}]}
    done, task = converted(tmp_path, row)
    assert (done.layout, task["expected_answer"], "completion" in task) == ("trl_completion", "Yes.", False)
    assert done.left_out == {}


def test_messages_of_a_completion_before_the_last_are_counted_as_left_out(tmp_path):
    completion = [{"role": "assistant", "content": "Wait."}, {"role": "assistant", "content": "Yes."}]
    done, task = converted(tmp_path, {"prompt": "Hi?", "completion": completion})
    assert (task["expected_answer"], done.left_out) == ("Yes.", {"completion before its last message": 1})
    with pytest.raises(UserError, match=r"in.jsonl:1: completion does not end with a text of the assistant"):
        converted(tmp_path, {"prompt": "Hi?", "completion": [{"role": "user", "content": "Yes."}]})


def test_an_unanswerable_question_of_squad_gets_no_answer(tmp_path):
    row = {"context": "All.", "question": "Hi?", "answers": {"text": [], "answer_start": []}}
    done, task = converted(tmp_path, row)
    assert (done.layout, "expected_answer" in task) == ("squad", False)


def test_tasks_are_written_to_standard_output_and_messages_to_standard_error(tmp_path):
    done = run(tmp_path, SUM, "--output", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["expected_answer"] == "2"
    assert "wrote 1 task to standard output" in done.stderr
    both = run(tmp_path, SUM, "--output", "-", "--json")
    assert "--json and --output - both print to stdout" in str(both.exception)


def test_an_export_for_verl_converts_back_to_each_task_once(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    rollouts = [rollout(task, repeat, prompt=f"About {task}?") for task in ("a", "b") for repeat in range(3)]
    export(write(tmp_path / "rollouts.jsonl", rollouts), "verl", tmp_path / "verl.parquet")
    done = convert(tmp_path / "verl.parquet", tmp_path / "tasks.jsonl")
    assert (done.layout, done.rows, done.repeated) == ("ludus_verl", 2, 4)
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert [task["responses_create_params"] for task in tasks] == [{"input": "About a?"}, {"input": "About b?"}]
    assert [task["expected_answer"] for task in tasks] == ["cold", "cold"]
