"""`ludus verify --rows`: rollouts without their task's fields get them from the dataset's row with the same prompt."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import CEILING

import ludus
from ludus import Resources, Response, Task, Verdict
from ludus.errors import UserError
from ludus.rescore import rescoring
from ludus.rescore.changes import Changes
from ludus.rescore.rescoring import rescore

Row = dict[str, Any]


class Said(Resources):
    """Rewards one word."""

    class Task(Task):
        wanted: str

    async def verify(self, task: Task, response: Response) -> float:
        return float(response.output_text == task.wanted)


def write(path: Path, *rows: Row) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def asked(prompt: Any, **fields: Any) -> Row:
    return {"responses_create_params": {"input": prompt}, **fields}


def joined(tmp_path: Path, rollouts: list[Row], rows: list[Row], environment: Any = Said) -> tuple[Changes, list[Row]]:
    source, dataset = write(tmp_path / "rollouts.jsonl", *rollouts), write(tmp_path / "example.jsonl", *rows)
    out = tmp_path / "out.jsonl"
    changes = rescore(source, environment, rows=dataset, output=out)
    return changes, read(out)


def test_a_rollout_gets_the_fields_of_the_row_with_its_prompt(tmp_path: Path):
    rows = [asked("Say yes", wanted="yes", extra=[2**70]), asked("Say no", wanted="no", extra=[1])]
    rollouts = [
        asked("Say no", response="no"),
        asked("Say yes", response="no", reward=1.0),
        asked("Say yes", response="yes"),
    ]
    changes, out = joined(tmp_path, rollouts, rows)
    assert changes.counts == {"new": 2, "changed": 1}
    assert [row["reward"] for row in out] == [1.0, 0.0, 1.0]
    assert [row["extra"] for row in out] == [[1], [2**70], [2**70]]
    again = rescore(tmp_path / "out.jsonl", Said)  # the output has the fields, and needs no dataset
    assert again.counts == {"unchanged": 3}


def test_a_prompt_that_no_row_or_two_different_rows_have_is_a_failure_and_the_counts_add_up(tmp_path: Path):
    rows = [
        asked("twice", wanted="a"),
        asked("once", wanted="b"),
        asked("twice", wanted="c"),
        asked("once", wanted="b"),
    ]
    rollouts = [asked(prompt, response="b") for prompt in ("once", "twice", "never")] + [{"response": "b"}]
    changes, out = joined(tmp_path, rollouts, rows)
    assert (changes.rows, changes.counts) == (4, {"new": 1, "failed": 3})
    assert changes.failures == {"open/ambiguous_match": 1, "open/no_match": 1, "open/bad_row": 1}
    assert [row.get("reward") for row in out] == [1.0, None, None, None]
    name = tmp_path / "example.jsonl"
    assert out[1]["cause"] == f"lines 1 and 3 of {name} have its prompt, and they differ"
    assert out[2]["cause"] == f"no row of {name} has its prompt"
    assert "has no prompt" in out[3]["cause"]
    assert "wanted" not in out[1]


def test_a_row_that_contradicts_the_rollout_is_a_failure(tmp_path: Path):
    changes, out = joined(tmp_path, [asked("x", wanted="a", response="a")], [asked("x", wanted="b")])
    assert changes.failures == {"open/no_match": 1}
    assert "its wanted differs from line 1" in out[0]["cause"]
    changes, out = joined(tmp_path, [asked("x", wanted=None, response="b")], [asked("x", wanted="b")])
    assert out[0]["reward"] == 1.0
    changes, out = joined(tmp_path, [asked("x", wanted=None, large=2**70, response="b")], [asked("x", wanted="b")])
    assert (out[0]["wanted"], out[0]["large"]) == ("b", 2**70)


MESSAGE = {"type": "message", "role": "user", "content": "Say yes", "status": None}
PARTS = {"role": "user", "content": [{"type": "input_text", "text": "Say yes"}], "id": "msg_1", "status": "completed"}


@pytest.mark.parametrize("prompt", ["Say yes", [MESSAGE], [PARTS], [{"content": "Say yes", "role": "user"}]])
def test_the_same_prompt_matches_however_it_is_written(tmp_path: Path, prompt: Any):
    _, out = joined(tmp_path, [asked(prompt, response="yes")], [asked("Say yes", wanted="yes")])
    assert out[0]["reward"] == 1.0
    _, out = joined(tmp_path, [asked("Say yes", response="yes")], [asked(prompt, wanted="yes")])
    assert out[0]["reward"] == 1.0


@pytest.mark.parametrize(
    "other",
    [
        "Say  yes",
        [{"role": "system", "content": "Say yes"}],
        [MESSAGE, MESSAGE],
        [{"role": "user", "content": [{"type": "input_text", "text": "Say"}, {"type": "input_text", "text": " yes"}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "Say yes"}]}],
    ],
)
def test_another_prompt_does_not_match(tmp_path: Path, other: Any):
    changes, _ = joined(tmp_path, [asked(other, response="yes")], [asked("Say yes", wanted="yes")])
    assert changes.failures == {"open/no_match": 1}


def test_instructions_are_part_of_the_prompt_and_sampling_parameters_are_not(tmp_path: Path):
    rows = [
        {"responses_create_params": {"input": "x", "instructions": "Be kind."}, "wanted": "kind"},
        {"responses_create_params": {"input": "x"}, "wanted": "plain"},
    ]
    rollouts = [
        {"responses_create_params": {"input": "x", "instructions": None, "temperature": 0.5}, "response": "plain"},
        {"responses_create_params": {"input": "x", "instructions": "Be kind.", "tools": []}, "response": "kind"},
    ]
    _, out = joined(tmp_path, rollouts, rows)
    assert [row["reward"] for row in out] == [1.0, 1.0]
    assert out[0]["responses_create_params"]["temperature"] == 0.5  # as it was asked


class Longest(Resources):
    """Rewards the longest answer to a task."""

    class Task(Task):
        unit: float

    async def verify_group(self, task: Task, responses: list[Response]) -> list[Verdict]:
        longest = max(len(each.output_text) for each in responses)
        return [Verdict(task.unit * (len(each.output_text) == longest), together=len(responses)) for each in responses]


def test_answers_that_are_judged_together_are_joined_first(tmp_path: Path):
    rollouts = [
        asked(prompt, response="x" * size) for size, prompt in enumerate(["a", "b", "a", "b", "never"], start=1)
    ]
    changes, out = joined(tmp_path, rollouts, [asked("a", unit=2.0), asked("b", unit=3.0)], Longest)
    assert [row.get("reward") for row in out] == [0.0, 0.0, 2.0, 3.0, None]
    assert {row.get("together") for row in out[:4]} == {2}
    assert changes.counts == {"new": 4, "failed": 1}


def test_the_row_may_name_the_environment(tmp_path: Path):
    row = asked("Which?", options=[{"A": "a"}, {"B": "b"}], expected_answer="A", agent_ref={"name": "mcqa"})
    _, out = joined(tmp_path, [asked("Which?", response="\\boxed{A}")], [row], None)
    assert (out[0]["reward"], out[0]["agent_ref"]) == (1.0, {"name": "mcqa"})


def test_helper_processes_join_like_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [
        asked(f"{number}", options=[{"A": "a"}, {"B": "b"}], expected_answer="AB"[number % 2]) for number in range(50)
    ]
    rollouts = [asked(f"{number % 60}", response="\\boxed{A}", pad="x" * 300) for number in range(3000)]
    alone, alone_out = joined(tmp_path, rollouts, rows, "mcqa")
    monkeypatch.setattr(rescoring, "MIN_BYTES_FOR_HELPERS", 1)
    monkeypatch.setattr(rescoring, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(rescoring, "HELPER_DELAY", 0.0)
    monkeypatch.setattr(rescoring, "processors", lambda: 3)
    helped, helped_out = joined(tmp_path, rollouts, rows, "mcqa")
    assert helped.summary() == alone.summary()
    assert helped_out == alone_out
    assert alone.counts == {"new": 2500, "failed": 500}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "example.jsonl holds no rows"),
        ("nonsense\n", "example.jsonl:1: not JSON"),
        ('\n{"wanted": "x"}\n', "example.jsonl:2: responses_create_params.input is missing"),
        (None, "cannot read .*example.jsonl"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_refused(tmp_path: Path, text: str | None, error: str):
    source, dataset = write(tmp_path / "rollouts.jsonl", asked("x", response="x")), tmp_path / "example.jsonl"
    if text is not None:
        dataset.write_text(text)
    with pytest.raises(UserError, match=error):
        rescore(source, Said, rows=dataset, output=tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_the_dataset_is_never_overwritten(tmp_path: Path):
    source = write(tmp_path / "rollouts.jsonl", asked("x", response="x"))
    dataset = write(tmp_path / "example.jsonl", asked("x", wanted="x"))
    with pytest.raises(UserError, match="is the dataset and would be overwritten"):
        rescore(source, Said, rows=dataset, output=dataset)


def test_the_command_joins_a_collection_to_its_dataset(tmp_path: Path):
    rows = [asked(f"Is it {letter}?", options=[{"A": "a"}, {"B": "b"}], expected_answer=letter) for letter in "AB"]
    ludus.collect("mcqa", model=ludus.ScriptedModel([r"\boxed{A}"]), input=rows, output=tmp_path / "run")
    stripped = [{key: row[key] for key in ("responses_create_params", "response", "reward")}
                for row in read(tmp_path / "run" / "rollouts.jsonl")]  # fmt: skip
    write(tmp_path / "rollouts.jsonl", *stripped)
    write(tmp_path / "example.jsonl", *rows)
    words = [sys.executable, "-m", "ludus", "verify", "rollouts.jsonl", "--env", "mcqa", "--json"]
    run: Row = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": CEILING, "env": dict(os.environ)}
    alone = forked.run(words, **run)
    assert json.loads(alone.stdout)["masked"] == 2  # mcqa cannot judge a row without its expected answer
    done = forked.run([*words, "--rows", "example.jsonl"], **run)
    assert (done.returncode, json.loads(done.stdout)["unchanged"]) == (0, 2), done.stderr


_prompts = st.sampled_from(["a", "b", "c", "d"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_prompts, st.sampled_from("xy")), min_size=1), st.lists(_prompts, min_size=1))
def test_every_rollout_is_joined_to_the_only_row_it_can_belong_to(tmp_path_factory: Any, rows: Any, prompts: Any):
    changes, out = joined(
        tmp_path_factory.mktemp("join"),
        [asked(prompt, response="x") for prompt in prompts],
        [asked(prompt, wanted=wanted) for prompt, wanted in rows],
    )
    assert changes.rows == len(prompts) == len(out)
    for prompt, row in zip(prompts, out, strict=True):
        candidates = {wanted for each, wanted in rows if each == prompt}
        if len(candidates) == 1:
            assert row["wanted"] == candidates.pop()
        else:
            assert row["kind"] == ("ambiguous_match" if candidates else "no_match")
            assert "reward" not in row
