"""Prompt templates: rows without a prompt get one, and the template is part of the run's identity."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import UserError
from ludus.prompt import PromptTemplate, load_prompt

ROW = {"question": "Who?", "choices": ["me", "you"], "meta": {"year": 1999}}


def prompt_of(template, row=ROW):
    return [each["content"] for each in load_prompt(template).fill(row)["responses_create_params"]["input"]]


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("Q: {question}", "Q: Who?"),
        ("{{}} {question}{question}", "{} Who?Who?"),
        ("{choices[1]}, {meta[year]}, {meta.year}", "you, 1999, 1999"),
        ("{choices}", "['me', 'you']"),
        ("{meta.year:>6} {question!r}", "  1999 'Who?'"),
    ],
)
def test_fields_are_filled_in(template, prompt):
    assert prompt_of(template) == [prompt]


def test_system_comes_first_and_other_parameters_are_kept():
    row = {**ROW, "responses_create_params": {"temperature": 0}}
    filled = PromptTemplate(user="{question}", system="Be {meta.year}").fill(row)
    assert filled["responses_create_params"] == {
        "temperature": 0,
        "input": [{"role": "system", "content": "Be 1999"}, {"role": "user", "content": "Who?"}],
    }
    assert row["responses_create_params"] == {"temperature": 0}


def test_a_row_with_a_prompt_keeps_it():
    row = {**ROW, "responses_create_params": {"input": "Mine"}}
    assert PromptTemplate(user="{question}").fill(row) is row


@pytest.mark.parametrize("hostile", ["{question}", "{0.__class__}", "}{", "%s"])
def test_a_value_that_looks_like_a_template_is_text(hostile):
    assert prompt_of("Say {text}", {"text": hostile}) == [f"Say {hostile}"]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{answer}", "the prompt needs the field answer, and the row has none"),
        ("{questoin}", "needs the field questoin, .*Did you mean question?"),
        ("{choices[2]}", "needs the field choices.2, and the row has none"),
        ("{question.__class__}", "needs the field question.__class__, and the row has none"),
        ("{meta.__class__.__init__}", "needs the field meta.__class__.__init__, and the row has none"),
        ("{question:d}", "the field question cannot be written as 'd'"),
        ("{question:1000000000000000}", "the format '1000000000000000' is wider than 500 characters"),
        ("{unclosed", "prompt.user: not a template: .*a brace is written {{ or }}"),
        ("{}", "not a template: {} names no field"),
        ("{question:{width}}", "the format '{width}' holds a field"),
        ({"text": "{question}"}, "prompt has no setting text"),
        ("nowhere.yaml", "cannot read prompt nowhere.yaml: No such file"),
    ],
)
def test_mistakes_are_one_line(template, says):
    with pytest.raises(UserError, match=says) as caught:
        prompt_of(template)
    assert "\n" not in str(caught.value)


def test_a_null_field_is_refused():
    with pytest.raises(UserError, match="the field question, and it is null"):
        prompt_of("{question}", {"question": None})


@given(st.text(alphabet="ab {}[].!:0", max_size=20), st.dictionaries(st.sampled_from("ab"), st.text(max_size=3)))
def test_templates_of_plain_fields_are_what_format_map_makes_of_them(template, row):
    try:
        expected = template.format_map(row)
    except (KeyError, ValueError, AttributeError, IndexError, TypeError):
        return
    try:
        found = prompt_of({"user": template}, row)
    except UserError:  # we refuse more: attributes and empty names
        return
    assert found == [expected]


def test_a_prompt_config_of_nemo_gym_loads_as_it_is(tmp_path):
    (tmp_path / "prompt.yaml").write_text('system: "Be brief."\nuser: |-\n  Solve: {question}\n  In \\boxed{{}}.\n')
    assert prompt_of(tmp_path / "prompt.yaml") == ["Be brief.", "Solve: Who?\nIn \\boxed{}."]


ROWS = [{"question": "1 + 1?", "expected_answer": "2"}, {"question": "1 + 2?", "expected_answer": "3"}]


def collected(tmp_path, **options):
    options = {"input": ROWS, "model": ludus.ScriptedModel(["\\boxed{2}"] * 9), "output": tmp_path / "run", **options}
    return ludus.collect("string_match", **options)


def test_a_collection_builds_the_prompts_and_records_them(tmp_path):
    result = collected(tmp_path, prompt="Q: {question}")
    prompts = {rollout.job.row["responses_create_params"]["input"][0]["content"] for rollout in result}
    assert prompts == {"Q: 1 + 1?", "Q: 1 + 2?"}
    identity = json.loads((tmp_path / "run" / "run.json").read_bytes())["identity"]
    assert identity["environments"]["string_match"]["prompt"] == {"user": "Q: {question}", "system": None}


def test_another_prompt_is_another_run(tmp_path):
    collected(tmp_path, prompt="Q: {question}")
    with pytest.raises(UserError, match="environments.string_match.prompt.user was 'Q: {question}', now 'A: {quest"):
        collected(tmp_path, prompt="A: {question}", resume=True)
    collected(tmp_path, prompt={"user": "Q: {question}"}, resume=True)


def test_a_row_that_the_prompt_does_not_fit_is_reported_with_its_place(tmp_path):
    (tmp_path / "rows.csv").write_text("problem,expected_answer\n1+1,2\n")
    with pytest.raises(UserError, match=r"rows.csv:2: the prompt needs the field question, and the row has none"):
        collected(tmp_path, input=tmp_path / "rows.csv", prompt="{question}")
    result = collected(tmp_path, input=tmp_path / "rows.csv", prompt="{problem}")
    assert result.metrics["counts"]["completed"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{usr: '{question}'}", r"environment.yaml: prompt has no setting usr. Did you mean user\?"),
        ("nowhere.yaml", "environment.yaml: cannot read prompt .*nowhere.yaml: No such file"),
        ("{system: x}", "environment.yaml: prompt.user is missing"),
        ("5", "environment.yaml: prompt"),
    ],
)
def test_a_mistake_in_an_environments_prompt_is_one_line(tmp_path, given, says):
    (tmp_path / "environment.yaml").write_text(
        f"name: sums\nresources: ludus.environments.string_match.resources:StringMatch\nprompt: {given}\n"
    )
    with pytest.raises(UserError, match=says) as caught:
        ludus.Environment.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["{user: 'Q: {question}'}", "prompt.yaml", "'Q: {question}'"])
def test_an_environment_carries_its_prompt(tmp_path, given):
    (tmp_path / "prompt.yaml").write_text("user: 'Q: {question}'\n")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "environment.yaml").write_text(
        "name: sums\nresources: ludus.environments.string_match.resources:StringMatch\n"
        f"prompt: {given}\ndatasets:\n- {{name: train, path: rows.json}}\n"
    )
    result = ludus.collect(tmp_path, model=ludus.ScriptedModel(["x"] * 2))
    prompts = {each.job.row["responses_create_params"]["input"][0]["content"] for each in result.rollouts}
    assert prompts == {"Q: 1 + 1?", "Q: 1 + 2?"}


def test_mixed_environments_fill_the_prompts_of_their_rows(tmp_path):
    for name, template in (("one", "One: {question}"), ("two", "Two: {question}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.json").write_text(json.dumps(ROWS[:1]))
        (tmp_path / name / "environment.yaml").write_text(
            f"name: {name}\nresources: ludus.environments.string_match.resources:StringMatch\n"
            f"prompt: {{user: '{template}'}}\ndatasets:\n- {{name: train, path: rows.json}}\n"
        )
    result = ludus.collect([tmp_path / "one", tmp_path / "two"], model=ludus.ScriptedModel(["x"] * 2))
    prompts = {each.job.row["responses_create_params"]["input"][0]["content"] for each in result.rollouts}
    assert prompts == {"One: 1 + 1?", "Two: 1 + 1?"}
