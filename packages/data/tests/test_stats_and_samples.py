"""`ludus data stats`, `sample` and `show`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from data_rows import command, read, row, write
from ludus_data.sample import sample
from ludus_data.stats import stats

from ludus import UserError


def test_fields_are_described_with_types_ranges_and_lengths(tmp_path: Path):
    rows = [
        row("one two", level=1, note="", tags=["a"]),
        row("three", level=5, note=None),
        {**row("x"), "responses_create_params": {"input": [{"role": "user", "content": "a b c"}], "temperature": 0.5}},
    ]
    found = stats([write(tmp_path / "rows.jsonl", *rows)])
    assert (found["rows"], found["bytes"]) == (3, (tmp_path / "rows.jsonl").stat().st_size)
    assert found["prompt"]["words"] == {"count": 3, "mean": 2.0, "p50": 2, "p95": 3, "max": 3}
    fields = found["fields"]
    assert fields["level"]["number"] == {"count": 2, "mean": 3.0, "min": 1.0, "max": 5.0, "deviation": 2.82843}
    assert fields["note"] == {**fields["note"], "rows": 2, "empty": 2, "types": {"text": 1}}
    assert fields["expected_answer"] == {**fields["expected_answer"], "distinct": 1, "types": {"text": 3}}
    assert fields["responses_create_params.temperature"]["number"]["mean"] == 0.5
    assert fields["tags"]["length"]["max"] == 1
    assert "rollouts" not in found


def test_rollouts_have_rewards_and_difficulties_and_failures_have_none(tmp_path: Path):
    def rollout(task: str, outcome: str, reward: float | None) -> dict[str, Any]:
        return {**row(task), "task_id": task, "outcome": outcome, "reward": reward, "response": {}}

    rows = [rollout("easy", "completed", 1.0)] * 2 + [rollout("hard", "completed", 0.0)]
    rows += [rollout("even", "completed", 0.0), rollout("even", "completed", 1.0)]
    rows += [rollout("hard", "failed", None), rollout("hard", "masked", 1.0)]
    (tmp_path / "run").mkdir()
    write(tmp_path / "run" / "rollouts.jsonl", *rows)
    found = stats([tmp_path / "run"])["rollouts"]
    assert found["outcomes"] == {"completed": 5, "failed": 1, "masked": 1}
    assert found["reward"] == {**found["reward"], "count": 5, "mean": 0.6}
    assert {name: count for name, count in found["mean_reward_of_tasks"].items() if count} == {
        "always fails": 1,
        "up to 1/2": 1,
        "always passes": 1,
    }


def test_hostile_rows_cannot_fill_the_memory_with_fields(tmp_path: Path):
    rows = ({**row(), **{f"{number}-{key}": 1 for key in range(100)}} for number in range(20))
    assert len(stats([write(tmp_path / "rows.jsonl", *rows)])["fields"]) == 500


@pytest.mark.slow
def test_tokens_are_counted_with_a_tokenizer(tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "one": 1, "two": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(tmp_path / "words")
    path = write(tmp_path / "rows.jsonl", row("one two three"), row("one"))
    assert stats([path], str(tmp_path / "words"))["prompt"]["tokens"] == {
        "count": 2,
        "mean": 2.0,
        "p50": 1,
        "p95": 3,
        "max": 3,
    }
    with pytest.raises(UserError, match="cannot load the tokenizer"):
        stats([path], str(tmp_path / "nowhere"))


def test_a_sample_keeps_the_order_and_every_row_has_the_same_chance(tmp_path: Path):
    path = write(tmp_path / "rows.jsonl", *(row(n=number) for number in range(10)))
    drawn = Counter[int]()
    for seed in range(500):
        lines, count = sample([path], 3, seed)
        numbers = [json.loads(line)["n"] for _, line in lines]
        assert (count, numbers) == (10, sorted(set(numbers)))
        drawn.update(numbers)
    assert min(drawn.values()) > 100  # 150 are expected
    assert sample([path], 3, 7) == sample([path], 3, 7)
    assert len(sample([path], 99)[0]) == 10


def test_the_sample_command_writes_rows_to_stdout_or_a_file(tmp_path: Path):
    write(tmp_path / "rows.jsonl", *(row(n=number) for number in range(10)))
    done = command(tmp_path, "sample", "rows.jsonl", "-n", "3")
    chosen = [json.loads(line)["n"] for line in done.stdout.splitlines()]
    assert command(tmp_path, "sample", "rows.jsonl", "-n", "3", "-o", "few.jsonl").returncode == 0
    assert [each["n"] for each in read(tmp_path / "few.jsonl")] == chosen
    found = json.loads(command(tmp_path, "sample", "rows.jsonl", "-n", "3", "--json").stdout)
    assert ([each["n"] for each in found["sample"]], found["rows"]) == (chosen, 10)


def test_show_lists_rows_and_prints_one_in_full(tmp_path: Path):
    tool = {"type": "function", "name": "look_up"}
    whole = row("Who? \x1b[31m", agent_ref={"name": "quiz"})
    whole["responses_create_params"] |= {"tools": [tool], "instructions": "Be brief", "temperature": 0.25}
    write(tmp_path / "rows.jsonl", row("first"), whole)
    listed = command(tmp_path, "show", "rows.jsonl")
    assert (listed.returncode, "first" in listed.stdout, "quiz" in listed.stdout) == (0, True, True)
    shown = command(tmp_path, "show", "rows.jsonl", "2").stdout
    for part in ("Be brief", "Who? ␛[31m", "look_up", "0.25", "expected_answer"):
        assert part in shown
    assert json.loads(command(tmp_path, "show", "rows.jsonl", "2", "--json").stdout) == whole
    assert len(json.loads(command(tmp_path, "show", "rows.jsonl", "--json").stdout)) == 2
    done = command(tmp_path, "show", "rows.jsonl", "3")
    assert (done.returncode, done.stderr) == (2, "error: rows.jsonl has no row 3. Choose a number from 1 to 2\n")


def test_the_stats_command_prints_tables_and_json(tmp_path: Path):
    write(tmp_path / "rows.jsonl", row("one two", level=3))
    shown = command(tmp_path, "stats", "rows.jsonl")
    assert (shown.returncode, "level" in shown.stdout) == (0, True)
    assert json.loads(command(tmp_path, "stats", "rows.jsonl", "--json").stdout)["rows"] == 1
