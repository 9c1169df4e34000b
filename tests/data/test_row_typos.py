"""Misspelled names in rows are warnings with a suggestion, and rows of other formats get a hint how to map them."""

from __future__ import annotations

import sys

import forked
import orjson
import pytest

import ludus
from ludus import Resources, ScriptedModel, UserError
from ludus.data.row_typos import RowTypos
from ludus.testing import shared_path


class Always(Resources):
    class Task(ludus.Task):
        expected_answer: str = ""

    async def verify(self, task, response):
        return 1.0


class Strict(Always):
    class Task(ludus.Task):
        expected_answer: str


def warnings(*params):
    rows = [{"responses_create_params": each, "n": n} for n, each in enumerate(params)]
    return ludus.collect(Always, model=ScriptedModel(["x"]), input=rows).warnings


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"input": "x", "max_tokens": 5},
            "row 1: responses_create_params.max_tokens is a name of Chat Completions. Write max_output_tokens",
        ),
        (
            {"input": [{"role": "usr", "content": "x"}]},
            "row 1: input[0].role is 'usr'; that is not a role. Did you mean user?",
        ),
        (
            {"input": "x", "temperature": "hot"},
            "row 1: responses_create_params.temperature must be a number, not 'hot'. Example: 1.0",
        ),
        (
            {"input": "x", "top_p": True},
            "row 1: responses_create_params.top_p must be a number, not True. Example: 1.0",
        ),
        (
            {"input": "x", "temperatur": 1},
            "row 1: responses_create_params.temperatur is unknown. Did you mean temperature?",
        ),
        ({"input": "x", "Top-P": 1}, "row 1: responses_create_params.Top-P is unknown. Did you mean top_p?"),
        (
            {"input": [{"role": "system", "content": "s"}, {"role": "user", "contnt": "x"}]},
            "row 1: input[1].contnt is unknown. Did you mean content?",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "txt": "x"}]}]},
            "row 1: input[0].content.txt is unknown. Did you mean text?",
        ),
        (
            {"input": "x", "tools": [{"type": "function", "name": "f", "paramters": {}}]},
            "row 1: tools[0].paramters is unknown. Did you mean parameters?",
        ),
    ],
)
def test_a_misspelled_name_is_a_warning_with_a_suggestion(params, says):
    (warning,) = warnings(params)
    assert warning.startswith(says)


def test_a_name_misspelled_in_many_rows_is_one_warning_with_a_count():
    (warning,) = warnings(*[{"input": "x", "temperatur": n} for n in range(12)])
    assert warning.startswith("row 1: responses_create_params.temperatur ")
    assert warning.endswith(" (11 more rows have it)")


@pytest.mark.parametrize(
    "params",
    [
        {"input": "x", "temperature": 1, "my_servers_own_switch": True, "top_k": 4, "chat_template_kwargs": {}},
        {"input": [{"role": "user", "content": "x", "name": "ann"}, {"type": "custom_thing", "contnt": 1}]},
        {"input": [{"role": "user", "content": "x", "contents": "also there"}]},
        {"input": "x", "tools": [{"type": "web_search", "paramters": {}}]},
    ],
)
def test_names_of_other_servers_and_types_are_no_warning(params):
    assert warnings(params) == []


def test_the_rows_of_public_datasets_have_no_warning():
    typos, count = RowTypos(), 0
    for path in sorted(shared_path("data").rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            row = orjson.loads(line)
            params = row.get("responses_create_params") if isinstance(row, dict) else None
            if isinstance(params, dict):
                typos.look(str(path), params)
                count += 1
    assert count > 0
    assert typos.warnings() == []


def test_a_row_with_very_many_names_costs_no_more_than_one_with_a_few():
    looked = RowTypos()
    looked.look("row 0", {"input": "x", **{f"temperatur{n}": n for n in range(100_000)}})
    assert 1 <= len(looked.warnings()) <= 20


def refusal(row, kind=Always):
    with pytest.raises(UserError) as caught:
        ludus.collect(kind, model=ScriptedModel(["x"]), input=[row])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["messages", "prompt"])
def test_a_row_with_its_prompt_in_another_field_gets_a_command_that_maps_it(name):
    row = {name: [{"role": "user", "content": "hi"}]}
    assert refusal(row) == (
        f"row 1: responses_create_params is missing. The prompt is in {name}: use ludus data convert FILE --output NEW"
    )
    text = refusal({name: "hi"})
    commands = f"ludus collect --prompt '{{{name}}}', or ludus data convert FILE --output NEW"
    assert f"The prompt is in {name}: use {commands}" in text
    nested = refusal({"responses_create_params": row})
    assert f"The prompt is in responses_create_params.{name}: write it as" in nested
    assert f"jq -c '.responses_create_params.input = .responses_create_params.{name}' FILE" in nested


def test_a_misspelled_field_of_a_row_is_suggested():
    good = {"responses_create_params": {"input": "x"}}
    assert refusal({**good, "expected_anser": "A"}, Strict) == (
        "row 1: expected_answer is missing. The row has expected_anser: did you mean expected_answer?"
    )
    assert refusal({"response_create_params": {"input": "x"}}) == (
        "row 1: responses_create_params is missing. "
        "The row has response_create_params: did you mean responses_create_params?"
    )
    assert refusal({**good, "expected_answer": 5}, Strict).startswith(
        "row 1: expected_answer must be text, not 5. Write it as"
    )


def test_the_command_prints_the_warning_before_the_run_and_in_the_table(tmp_path):
    row = {"responses_create_params": {"input": "x", "temperatur": 1}, "expected_answer": "A"}
    row |= {"options": [{"A": "yes"}, {"B": "no"}]}
    (tmp_path / "rows.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    (tmp_path / "script.yaml").write_text("- x\n")
    words = ["collect", "mcqa", "-i", "rows.jsonl", "-m", "scripted:script.yaml", "-o", "run"]
    command = [sys.executable, "-m", "ludus", *words]
    done = forked.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    says = "rows.jsonl:1: responses_create_params.temperatur is unknown. Did you mean temperature?"
    assert f"warning: {says}" in done.stderr
    assert f"warning {says}" in " ".join(done.stdout.replace("│", " ").split())
    assert orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())["warnings"] == [says]
