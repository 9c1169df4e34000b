"""Rows of published datasets load as they are, and a row that cannot be judged is named with its line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ludus_data.commands import data as commands

import ludus
from ludus import ScriptedModel, Verdict
from ludus.environments.code_tests.mapping import mapped
from ludus.testing import judge, needs_sandbox

NAME = "code_tests"
FINE: dict[str, Any] = {"responses_create_params": {"input": "Write f."}, "entry_point": "f"}


def test_rows_of_other_datasets_load_as_they_are() -> None:
    lines = ludus.Environment.load(NAME).dataset().read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert {"prompt", "instruct_prompt", "text"} <= {key for row in rows for key in row}
    for row in rows:
        fields = mapped(row)
        assert fields["responses_create_params"]["input"]
        assert fields["entry_point"]
        assert fields["solution"]
        assert mapped(fields) == fields


def test_rows_that_were_converted_keep_their_code(tmp_path: Path) -> None:
    source, target = tmp_path / "published.jsonl", tmp_path / "tasks.jsonl"
    lines = ludus.Environment.load(NAME).dataset().read_text().splitlines()
    source.write_text("\n".join(line for line in lines if '"canonical_solution"' in line and '"prompt"' in line))
    ended = CliRunner().invoke(commands, ["convert", str(source), "--output", str(target)])
    assert ended.exit_code == 0, ended.output
    published = [mapped(json.loads(line)) for line in source.read_text().splitlines()]
    converted = [mapped(json.loads(line)) for line in target.read_text().splitlines()]
    assert len(converted) == 2
    for before, after in zip(published, converted, strict=True):
        assert "prompt" not in after
        assert (after["context"], after["solution"]) == (before["context"], before["solution"])


def test_a_broken_row_of_a_file_is_named_with_its_line_before_the_model_is_asked(tmp_path: Path) -> None:
    rows = [{**FINE, "test": test} for test in ("assert f(1) == 1", "import requests_of_nobody\nassert f(1) == 1")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = ScriptedModel(lambda request: pytest.fail("the model was asked"))
    with pytest.raises(ludus.UserError) as caught:
        ludus.collect(NAME, model=model, input=path)
    said = str(caught.value)
    assert "rows.jsonl:2" in said
    assert "test imports requests_of_nobody" in said
    assert "\n" not in said


EVALPLUS: dict[str, Any] = {
    "task_id": "HumanEval/900",
    "prompt": 'def halves(xs: list) -> list:\n    """Halve every number of a list."""\n',
    "entry_point": "halves",
    "canonical_solution": "    return [x / 2 for x in xs]\n",
    "contract": "    assert type(xs) == list\n",
    "base_input": [[[1, 2]], [[]]],
    "plus_input": [[[0.1, 10**18]], [[-3]]],
    "atol": 0,
}
EVALPLUS_TEST = """
def is_floats(x):
    return isinstance(x, float)

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    assert out == exp, f"out: {out}, exp: {exp}"

def check(candidate):
    inputs = [[[1, 2]], [[]]]
    results = [[0.5, 1.0], []]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""
MBPP_PLUS: dict[str, Any] = {
    "task_id": "Mbpp/900",
    "prompt": '"""\nWrite a function that finds what two tuples share.\nassert shared((1, 2), (2,)) == (2,)\n"""\n',
    "entry_point": "shared",
    "canonical_solution": "\ndef shared(a, b):\n    return tuple(sorted(set(a) & set(b)))\n",
    "base_input": [[[1, 2], [2]], [[], []]],
    "plus_input": [[[3, 1, 2], [2, 3]]],
    "atol": 0,
}
BIGCODEBENCH: dict[str, Any] = {
    "task_id": "BigCodeBench/900",
    "complete_prompt": 'import re\nfrom collections import Counter\n\ndef task_func(text):\n    """Count words."""\n',
    "instruct_prompt": "Count the words of a text.\nYou should write code starting with:\n```\nimport re\n```",
    "code_prompt": "import re\nfrom collections import Counter\n\ndef task_func(text):\n",
    "canonical_solution": "    return dict(Counter(re.findall(r'\\w+', text)))",
    "entry_point": "task_func",
    "libs": "['re', 'collections']",
    "doc_struct": "{}",
    "test": (
        "import unittest\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n        self.text = 'a b a'\n"
        "    def test_case_1(self):\n        self.assertEqual(task_func(self.text), {'a': 2, 'b': 1})\n"
        "    def test_case_2(self):\n        self.assertDictEqual(task_func(''), {})\n"
    ),
}
MBPP: dict[str, Any] = {
    "task_id": 900,
    "text": "Write a function to double a number.",
    "code": "def double(x):\r\n  return math.floor(2 * x)",
    "test_setup_code": "import math",
    "test_list": ["assert double(2) == math.floor(4.5)"],
    "challenge_test_list": [],
}


#: A row, a right program and a wrong one.
PUBLISHED = {
    "evalplus": (
        EVALPLUS,
        "def halves(xs):\n    return [0.5 * x for x in xs]",
        "def halves(xs):\n    return [0.5, 1.0][:len(xs)]",
    ),
    "evalplus_on_the_hub": (
        {
            "prompt": EVALPLUS["prompt"].replace("Halve every", "Halve each"),
            "entry_point": "halves",
            "canonical_solution": EVALPLUS["canonical_solution"],
            "test": EVALPLUS_TEST,
        },
        "def halves(xs):\n    return [x / 2 for x in xs]",
        "def halves(xs):\n    return xs",
    ),
    "mbpp_plus": (
        MBPP_PLUS,
        "def shared(a, b):\n    return tuple(x for x in sorted(a) if x in b)",
        "def shared(a, b):\n    return (2,)",
    ),
    "bigcodebench": (
        BIGCODEBENCH,
        "def task_func(t):\n    return {w: t.split().count(w) for w in t.split()}",
        "def task_func(t):\n    return {}",
    ),
    "mbpp": (MBPP, "def double(x):\n    return x + x", "def double(x):\n    return x"),
}


@needs_sandbox()
def test_a_file_of_published_rows_is_collected_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "published.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row, _, _ in PUBLISHED.values()))
    environment = ludus.Environment.load(NAME)
    prompts = [json.dumps(environment.task(row).input) for row, _, _ in PUBLISHED.values()]
    for (row, _, _), asked in zip(PUBLISHED.values(), prompts, strict=True):
        words = row.get("text") or row.get("instruct_prompt") or row["prompt"]
        assert json.dumps(str(words).strip())[1:-1] in asked

    def answer(request: Any, which: int) -> str:
        number = prompts.index(json.dumps(list(request.input)))
        return f"```python\n{list(PUBLISHED.values())[number][which]}\n```"

    for which, reward in ((1, 1.0), (2, 0.0)):
        model = ScriptedModel(partial(answer, which=which))
        rollouts = ludus.collect(environment, model=model, input=path).rollouts
        assert [rollout.reward for rollout in rollouts] == [reward] * len(PUBLISHED)


@needs_sandbox()
async def test_a_signature_before_the_program_is_completed_where_the_task_is_described_elsewhere() -> None:
    task_row = {
        "instruct_prompt": "Double x.",
        "complete_prompt": "import math\ndef f(x):",
        "entry_point": "f",
        "test": "assert f(2) == 4",
    }
    verdict = await judge(NAME, task_row, "```python\ndef f(x):\n    return math.prod([2, x])\n```")
    assert isinstance(verdict, Verdict), verdict
    assert verdict.reward == 1.0
