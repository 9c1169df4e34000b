"""Rows of other tools become tasks: by a mapping, or by a layout that is detected. A mistake leaves nothing behind."""

from __future__ import annotations

import json

import orjson
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from ludus_data.commands import data as commands
from ludus_data.convert import convert, load_mapping
from ludus_data.layouts import LAYOUTS, detect_layout, find_layout
from ludus_data.mapping import RowMapping

import ludus
from ludus import UserError

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
HI = [{"role": "user", "content": "Hi?"}]

#: For each layout: a row as its tool writes it, and the task that it becomes.
EXAMPLES = {
    "tasks": ({"responses_create_params": {"input": "Hi?"}, "x": 1}, {"input": "Hi?"}, {"x": 1}),
    "ludus_verl": (
        {
            "data_source": "sums",
            "prompt": CHAT,
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "extra_info": {"rollout_id": "a-0", "task": '{"responses_create_params": {"input": "Hi?"}, "x": 1}'},
        },
        {"input": "Hi?"},
        {"x": 1},
    ),
    "verl": (
        {
            "data_source": "sums",
            "prompt": CHAT,
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "extra_info": {"index": 0},
        },
        {"input": CHAT},
        {
            "data_source": "sums",
            "ability": "math",
            "reward_model": {"style": "rule"},
            "extra_info": {"index": 0},
            "expected_answer": "4",
        },
    ),
    "arc": (
        {"id": "q1", "question": "Hi?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
        {"input": [{"role": "user", "content": "Hi?\n\nA) a\nB) b"}]},
        {"id": "q1", "options": [{"A": "a"}, {"B": "b"}], "expected_answer": "B"},
    ),
    "mmlu": (
        {"question": "Hi?", "subject": "s", "choices": ["a", "b", "c"], "answer": 2},
        {"input": [{"role": "user", "content": "Hi?\n\nA) a\nB) b\nC) c"}]},
        {"subject": "s", "options": [{"A": "a"}, {"B": "b"}, {"C": "c"}], "expected_answer": "C"},
    ),
    "inspect": (
        {"id": 7, "input": "Hi?", "target": "A", "choices": ["a", "b"], "metadata": {"x": 1}},
        {"input": [{"role": "user", "content": "Hi?\n\nA) a\nB) b"}]},
        {"task_id": 7, "expected_answer": "A", "options": [{"A": "a"}, {"B": "b"}], "metadata": {"x": 1}},
    ),
    "alpaca": (
        {"instruction": "Add.", "input": "1 and 2", "output": "3"},
        {"input": [{"role": "user", "content": "Add.\n\n1 and 2"}]},
        {"expected_answer": "3"},
    ),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Yes."}], "system": "Be brief."},
        {"input": CHAT},
        {"expected_answer": "Yes."},
    ),
    "messages": (
        {
            "messages": [*CHAT, {"role": "assistant", "content": "Yes."}],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        },
        {"input": CHAT, "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}]},
        {"expected_answer": "Yes."},
    ),
    "conversations": ({"conversations": CHAT, "level": 3}, {"input": CHAT}, {"level": 3}),
    "gsm8k": (
        {"question": "Hi?", "answer": "1 + 1 is 2.\n#### 2"},
        {"input": HI},
        {"expected_answer": "2"},
    ),
    "math": (
        {"problem": "Hi?", "solution": "So \\boxed{1}, or \\boxed{\\frac{1}{2}}.", "level": "Level 1"},
        {"input": HI},
        {"level": "Level 1", "expected_answer": "\\frac{1}{2}"},
    ),
    "problem_answer": ({"problem": "Hi?", "answer": "2"}, {"input": HI}, {"expected_answer": "2"}),
    "squad": (
        {"id": "1", "context": "All.", "question": "Hi?", "answers": {"text": ["a", "b"], "answer_start": [1, 9]}},
        {"input": [{"role": "user", "content": "Hi?\n\nAll."}]},
        {"id": "1", "answers": {"text": ["a", "b"], "answer_start": [1, 9]}, "expected_answer": "a"},
    ),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": "Hi?", "test": "def check(): 1", "entry_point": "f"},
        {"input": HI},
        {"task_id": "HumanEval/0", "test": "def check(): 1", "entry_point": "f"},
    ),
    "mbpp": (
        {"text": "Hi?", "code": "x", "test_list": ["assert f()"]},
        {"input": HI},
        {"code": "x", "test_list": ["assert f()"]},
    ),
    "trl_preference": (
        {"prompt": "Hi?", "chosen": "Yes", "rejected": "No"},
        {"input": HI},
        {"chosen": "Yes", "rejected": "No"},
    ),
    "trl_completion": ({"prompt": "Hi?", "completion": "Yes"}, {"input": HI}, {"expected_answer": "Yes"}),
    "verifiers": (
        {"prompt": CHAT, "answer": "2", "info": {"x": 1}, "example_id": 3},
        {"input": CHAT},
        {"info": {"x": 1}, "example_id": 3, "expected_answer": "2"},
    ),
    "trl_solution": ({"prompt": CHAT, "solution": "2"}, {"input": CHAT}, {"expected_answer": "2"}),
    "question_answer": ({"question": "Hi?", "answer": "2"}, {"input": HI}, {"expected_answer": "2"}),
    "trl_prompt": ({"prompt": CHAT}, {"input": CHAT}, {}),
}


def write(path, rows):
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def converted(tmp_path, rows, mapping=None, **options):
    done = convert(write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", mapping, overwrite=True, **options)
    return done, [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]


def test_every_layout_has_an_example():
    assert EXAMPLES.keys() == {layout.name for layout in LAYOUTS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_layout_is_detected_and_its_rows_become_tasks(tmp_path, name):
    row, params, fields = EXAMPLES[name]
    said = []
    done, [task] = converted(tmp_path, [row], say=said.append)
    assert done.layout == name
    assert said == [
        f"{tmp_path / 'in.jsonl'}: layout {name} ({find_layout(name).mapping.arrows()}); choose another "
        "with --layout or --map"
    ]
    assert task["responses_create_params"]["input"] == params["input"]
    assert task == {"responses_create_params": params, **fields}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("tasks",)])
def test_rows_of_parquet_have_null_where_others_have_no_field(tmp_path, name):
    row, params, fields = EXAMPLES[name]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "in.parquet")
    convert(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_bytes()) == {"responses_create_params": params, **fields}


def test_flags_map_any_fields(tmp_path):
    mapping = RowMapping(map={"q": "prompt", "meta.gold": "expected_answer", "n": "verifier_metadata.n"})
    _, [task] = converted(tmp_path, [{"q": "Hi?", "meta": {"gold": "2", "x": 1}, "n": 5}], mapping)
    assert task == {
        "responses_create_params": {"input": HI},
        "meta": {"x": 1},
        "expected_answer": "2",
        "verifier_metadata": {"n": 5},
    }


def test_a_mapping_file_is_read(tmp_path):
    (tmp_path / "map.yaml").write_text(
        "map: {q: prompt, gold: expected_answer}\nafter: {gold: '=>'}\n"
        "text: [n]\ndrop: [junk]\nset: {grading: strict}\n"
    )
    rows = [{"q": "Hi?", "gold": "so => 2 ", "n": 5, "junk": 1}]
    _, [task] = converted(tmp_path, rows, load_mapping(tmp_path / "map.yaml"))
    assert task == {"responses_create_params": {"input": HI}, "n": "5", "grading": "strict", "expected_answer": "2"}
    (tmp_path / "map.yaml").write_text("mpa: {}\n")
    with pytest.raises(UserError, match=r"map.yaml has no setting mpa. Did you mean map\?"):
        load_mapping(tmp_path / "map.yaml")


def test_a_template_builds_the_prompt(tmp_path):
    mapping = RowMapping(map={"a": "expected_answer"}, prompt={"system": "S", "user": "Q: {q}"})
    _, [task] = converted(tmp_path, [{"q": "Hi?", "a": "2"}], mapping)
    assert task["responses_create_params"]["input"] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q: Hi?"},
    ]
    assert task["q"] == "Hi?"
    assert task["expected_answer"] == "2"


def test_flags_add_to_a_layout(tmp_path):
    rows = [{"question": "Hi?", "answer": "1 #### 2", "note": "x"}]
    done, [task] = converted(tmp_path, rows, RowMapping(drop=["note"]), layout=find_layout("gsm8k"))
    assert (done.layout, task) == ("gsm8k", {"responses_create_params": {"input": HI}, "expected_answer": "2"})


def test_what_a_task_has_no_place_for_is_counted(tmp_path):
    rows = [{"messages": [{"role": "user", "content": "Hi?", "weight": 1}]}] * 3
    done, _ = converted(tmp_path, rows)
    assert done.left_out == {"messages[].weight": 3}


GOOD = {"question": "Hi?", "answer": "2"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            b'{"question": "Hi?", "answer": 3}',
            "in.jsonl:21: expected_answer is a number, and was text in .*in.jsonl:1. "
            "Make it text everywhere: --text answer",
        ),
        (b'{"question": "Hi?", "answer": ["2"]}', "in.jsonl:21: expected_answer is a list, and was text"),
        (b'{"question": "Hi?"}', "in.jsonl:21: the row has no field answer"),
        (b'{"question": 5, "answer": "2"}', "in.jsonl:21: the prompt must be a text or a list of messages, not 5"),
        (b'{"question": "Hi?", "answer": NaN}', "in.jsonl:21: not JSON"),
        (b'{"question": "\\ud800", "answer": "2"}', "in.jsonl:21: not JSON: .*surrogate"),
        (b'{"question": "Hi?", "answer": "2", "answer": "3"}', "in.jsonl:21: the key 'answer' stands twice"),
        (b'{"question": "Hi?", "answer": "2"', "in.jsonl:21: not JSON"),
        (b'{"question": "Hi?", "answer": "2", "expected_answer": "3"}', "in.jsonl:21: expected_answer is a field of"),
        (b'"text"', "in.jsonl:21: not a JSON object"),
    ],
)
def test_a_bad_row_is_named_and_the_old_output_stays(tmp_path, line, says):
    rows = b"".join(orjson.dumps(GOOD) + b"\n" for _ in range(20))
    (tmp_path / "in.jsonl").write_bytes(rows + line + b"\n")
    (tmp_path / "out.jsonl").write_bytes(b"old")
    with pytest.raises(UserError, match=says) as caught:
        convert(tmp_path / "in.jsonl", tmp_path / "out.jsonl", overwrite=True)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "out.jsonl").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_text_makes_a_column_of_one_type(tmp_path):
    rows = [GOOD, {**GOOD, "answer": 3}, {**GOOD, "answer": 0.5}]
    for name in ("answer", "expected_answer"):
        _, tasks = converted(tmp_path, rows, RowMapping(text=[name]))
        assert [task["expected_answer"] for task in tasks] == ["2", "3", "0.5"]


def test_an_existing_output_is_not_replaced(tmp_path):
    write(tmp_path / "out.jsonl", [GOOD])
    with pytest.raises(UserError, match="out.jsonl exists already. Add --overwrite"):
        convert(write(tmp_path / "in.jsonl", [GOOD]), tmp_path / "out.jsonl")


def test_unknown_fields_are_listed():
    with pytest.raises(UserError, match="no known layout has these fields: foo, bar. .*--map FIELD=prompt"):
        detect_layout([{"foo": 1, "bar": 2}])
    with pytest.raises(UserError, match="unknown layout gsm8. Did you mean gsm8k?"):
        find_layout("gsm8")


def test_converted_rows_are_collected(tmp_path):
    rows = [EXAMPLES["mmlu"][0]]
    converted(tmp_path, rows)
    result = ludus.collect("mcqa", input=tmp_path / "out.jsonl", model=ludus.ScriptedModel(["\\boxed{C}"]))
    assert [rollout.reward for rollout in result] == [1.0]


def test_the_command_says_what_it_did(tmp_path):
    (tmp_path / "in.csv").write_text('q,messages\nHi?,"[{""role"": ""user"", ""content"": ""Hi?""}]"\n')
    output = tmp_path / "out.jsonl"
    command = ["convert", str(tmp_path / "in.csv"), "--output", str(output)]
    done = CliRunner().invoke(commands, [*command, "--parse", "messages", "--layout", "messages", "--drop", "q"])
    assert done.exit_code == 0, done.output
    assert f"wrote 1 task to {output}" in done.output.replace("\n", "")
    assert json.loads(output.read_bytes()) == {"responses_create_params": {"input": HI}}
    flags = ["--map", "q=prompt", "--drop", "messages", "--overwrite", "--json"]
    done = CliRunner().invoke(commands, [*command, *flags])
    assert json.loads(done.stdout)["rows"] == 1
    assert json.loads(done.stdout)["mapping"] == {"map": {"q": "prompt"}, "drop": ["messages"]}
