"""Exports are read back by their targets' own loaders: datasets, pyarrow, the openai SDK's types, Harbor's models."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ludus_data.export.exporting import export
from pydantic import TypeAdapter
from rollout_files import COUNTER, rollout, with_tokens, with_tools, write

from ludus.errors import UserError
from ludus.response import function_call, function_call_output, message


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    """Two environments with different tools, and a rollout without tools."""
    counted = [
        function_call("count_to", {"number": 3}, call_id="c"),
        function_call_output("c", "1 2 3"),
        message("Done."),
    ]
    rollouts = [
        with_tools(repeat=0, reward=1.0),
        with_tools(repeat=1, reward=0.0),
        rollout("count", 0, 1.0, items=counted, tools=[COUNTER], environment="counter", parts=["a", 1]),
        rollout("count", 1, 0.5, environment="counter"),
        with_tokens(),
    ]
    return write(tmp_path_factory.mktemp("run") / "rollouts.jsonl", rollouts)


def dataset(path: Path, tmp_path: Path) -> Any:
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'ludus-transformers[train]'")
    datasets.disable_progress_bars()
    return datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("to", ["sft", "dpo", "kto", "rm", "grpo", "nemo", "nemo-preference", "openai", "atif"])
def test_datasets_gives_the_rows_of_every_json_format_back(run, tmp_path, to):
    target = tmp_path / "out.jsonl"
    export(run, to, target)
    written = [json.loads(line) for line in target.read_text().splitlines()]
    assert without_nulls(list(dataset(target, tmp_path))) == without_nulls(written)


def without_nulls(value: Any) -> Any:
    """A table has every column in every row, so a missing key comes back as null. The loader rounds to 10 digits."""
    if isinstance(value, float):
        return round(value, 9)
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_datasets_loads_the_folder_with_messages_tools_and_tasks_as_objects(run, tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'ludus-transformers[train]'")
    datasets.disable_progress_bars()
    export(run, "sft", tmp_path / "sft.jsonl")
    summary = export(run, "hf", tmp_path / "set")
    assert summary.rows == 5
    found = datasets.load_dataset(str(tmp_path / "set"), split="train", cache_dir=str(tmp_path / "cache"))
    expected = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert [row["messages"] for row in found] == [row["messages"] for row in expected]
    assert [row["tools"] for row in found] == [row["tools"] for row in expected]
    assert found[0]["task"]["expected_answer"] == "cold"
    assert found[2]["verdict"] == {"parts": ["a", 1]}
    assert found[4]["policy_versions"] == ["step-3", "step-4"]
    assert found[0]["receipt"].startswith("aaaaaaaaaaaa.")


def test_integers_that_datasets_cannot_read_are_left_out_of_the_folder(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    given = [2**64 - 1, -(2**63), 2**64 + 1, -(2**63) - 1, 10**30]
    calls = [
        [function_call("f", json.dumps({"n": number}), call_id="c"), function_call_output("c", "1"), message("a")]
        for number in given
    ]
    rollouts = [rollout(f"t{number}", 0, 1.0, items=items) for number, items in enumerate(calls)]
    summary = export(write(tmp_path / "rollouts.jsonl", rollouts), "hf", tmp_path / "set")
    assert (summary.rows, summary.left_out) == (2, {"an integer beyond 64 bits": 3})


def test_an_exported_folder_can_be_replaced(run, tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    export(run, "hf", tmp_path / "set")
    export(run, "hf", tmp_path / "set", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["README.md", "data"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_a_file_is_not_replaced_by_a_folder(run, tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    (tmp_path / "set").write_text("mine")
    with pytest.raises(UserError, match="is a file, and this format makes a folder"):
        export(run, "hf", tmp_path / "set", overwrite=True)
    assert (tmp_path / "set").read_text() == "mine"


def test_the_table_for_verl_says_which_part_of_a_call_it_has_no_column_for(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    call = {**function_call("get_weather", {"city": "Oslo"}, call_id="call_1"), "extra_content": {"signature": "s"}}
    items = [call, function_call_output("call_1", "cold"), message("It is cold.")]
    made = export(write(tmp_path / "rollouts.jsonl", [rollout(items=items)]), "verl", tmp_path / "train.parquet")
    lost = "messages[].tool_calls[].extra_content: the table has no column for it"
    assert (made.rows, made.not_carried) == (1, {lost: 1})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS.filter(bool), st.floats(allow_nan=False, allow_infinity=False)), max_size=5))
def test_tables_give_every_text_and_every_reward_back(rollouts):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            rollout("t", repeat, reward, prompt=asked, items=[message(answer)])
            for repeat, (asked, answer, reward) in enumerate(rollouts)
        ]
        source = write(Path(folder, "run.jsonl"), lines)
        export(source, "verl", Path(folder, "table"))
        found = parquet.read_table(Path(folder, "table")).to_pylist()
        export(source, "hf", Path(folder, "set"))
        others = parquet.read_table(Path(folder, "set", "data")).to_pylist()
    told = [[message["content"] for message in row["messages"]] for row in found]
    assert told == [[asked, answer] for asked, answer, _ in rollouts]
    assert [row["extra_info"]["reward"] for row in found] == [reward for *_, reward in rollouts]
    assert [[orjson.loads(message)["content"] for message in row["messages"]] for row in others] == told
    assert [row["reward"] for row in others] == [reward for *_, reward in rollouts]


def test_pyarrow_reads_the_table_for_verl(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    export(run, "verl", tmp_path / "train.parquet")
    rows = parquet.read_table(tmp_path / "train.parquet").to_pylist()
    assert len(rows) == 5
    first = rows[0]
    assert first["data_source"] == "weather"
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert first["messages"][1]["reasoning_content"] == "I should look."
    assert json.loads(first["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert json.loads(first["tools"][0]["function"]["parameters"])["required"] == ["city"]
    assert first["reward_model"] == {"style": "rule", "ground_truth": "cold"}
    task = json.loads(first["extra_info"]["task"])
    assert (task["expected_answer"], task["responses_create_params"]["input"]) == (
        "cold",
        "How is the weather in Oslo?",
    )
    assert (first["extra_info"]["reward"], first["extra_info"]["rollout_id"]) == (1.0, "tools-0")
    assert rows[4]["extra_info"]["policy_versions"] == ["step-3", "step-4"]


def test_the_openai_sdks_types_accept_every_fine_tuning_row(run, tmp_path):
    chat = pytest.importorskip("openai.types.chat", reason="needs openai: pip install openai")
    export(run, "openai", tmp_path / "out.jsonl")
    messages = TypeAdapter(list[chat.ChatCompletionMessageParam])
    tools = TypeAdapter(list[chat.ChatCompletionToolParam])
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 5
    for row in rows:
        messages.validate_python(row["messages"], strict=True)
        tools.validate_python(row.get("tools", []), strict=True)
        assert row["messages"][-1]["role"] == "assistant"


def test_a_trajectory_has_a_step_for_each_model_call_with_its_tokens(run, tmp_path):
    export(run, "atif", tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    last = found[-1]
    assert last["schema_version"] == "ATIF-v1.7"
    assert [step["step_id"] for step in last["steps"]] == [1, 2, 3]
    assert [step["source"] for step in last["steps"]] == ["user", "agent", "agent"]
    _, first, second = last["steps"]
    assert first["tool_calls"][0] == {
        "tool_call_id": "call_1",
        "function_name": "get_weather",
        "arguments": {"city": "Oslo"},
    }
    assert first["observation"] == {"results": [{"source_call_id": "call_1", "content": "cold"}]}
    assert first["reasoning_content"] == "I should look."
    assert second["metrics"]["prompt_token_ids"] == [5, 6, 7, 8, 9, 10, 11]
    assert second["metrics"]["completion_token_ids"] == [12]
    assert second["metrics"]["logprobs"] == [-1.0]
    assert last["extra"]["receipt"].startswith("aaaaaaaaaaaa.")
    assert last["final_metrics"]["extra"]["reward"] == 1.0


def test_harbor_accepts_every_trajectory(run, tmp_path):
    trajectories = pytest.importorskip("harbor.models.trajectories", reason="needs harbor, on Python 3.12")
    odd = [
        rollout("odd", 0, items=[function_call("f", "not json", call_id="x"), function_call_output("x", "bad")]),
        rollout("odd", 1, items=[function_call_output("nobody", "late"), message("ok")]),
        rollout("odd", 2, prompt=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]),
    ]
    more = write(tmp_path / "odd.jsonl", odd)
    for number, source in enumerate((run, more)):
        export(source, "atif", tmp_path / f"{number}.jsonl")
        for line in (tmp_path / f"{number}.jsonl").read_text().splitlines():
            trajectories.Trajectory.model_validate_json(line)
