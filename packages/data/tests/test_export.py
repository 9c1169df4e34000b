"""`ludus data export`: what each format holds, what is left out, and that every rollout is accounted for."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ludus_data.export.exporting import Exported, export
from ludus_data.export.format import Choices
from ludus_data.export.pairs import PairRule
from ludus_data.export.registry import FORMATS
from ludus_data.filters import Filters
from rollout_files import COUNTER, rollout, with_tokens, with_tools, write

from ludus import UserError, Verdict
from ludus.response import function_call, function_call_output, message, reasoning
from ludus.thread import Thread
from ludus.tokens import TokenLog, Tokens


def exported(tmp_path: Path, to: str, rollouts: list[Any], **options: Any) -> tuple[list[dict[str, Any]], Exported]:
    """The rows of an export in JSON lines, and its summary."""
    source, target = write(tmp_path / "rollouts.jsonl", rollouts), tmp_path / "out.jsonl"
    summary = export(source, to, target, overwrite=True, **options)
    assert summary.rollouts == summary.used + sum(summary.left_out.values())
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert summary.rows == len(rows)
    return rows, summary


ORIGIN = {
    "rollout_id": "tools-0",
    "task_id": "tools",
    "environment": "weather",
    "outcome": "completed",
    "reward": 1.0,
    "stop_reason": "completed",
    "receipt": "aaaaaaaaaaaa.bbbbbbbbbbbb.cccccccccccc",
    "policy_versions": [],
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}


def test_sft_holds_messages_tools_and_the_origin(tmp_path):
    (row,), _ = exported(tmp_path, "sft", [with_tools()])
    assert row["messages"] == [
        {"role": "user", "content": "How is the weather in Oslo?"},
        {"role": "assistant", "content": None, "reasoning_content": "I should look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "cold"},
        {"role": "assistant", "content": "It is cold, said try 0."},
    ]
    assert row["tools"][0]["function"]["name"] == "get_weather"
    assert row["ludus"] == ORIGIN


def test_reasoning_is_kept_tagged_or_dropped_and_a_drop_is_reported(tmp_path):
    tagged, _ = exported(tmp_path, "sft", [with_tools()], choices=Choices(reasoning="tags"))
    assert tagged[0]["messages"][1]["content"] == "<think>I should look.</think>"
    (dropped,), summary = exported(tmp_path, "sft", [with_tools()], choices=Choices(reasoning="drop"))
    assert "look" not in json.dumps(dropped["messages"][1])
    assert summary.not_carried == {"output[]: reasoning was dropped": 1}


def test_sft_can_separate_the_prompt_from_the_completion(tmp_path):
    (row,), _ = exported(tmp_path, "sft", [with_tools()], choices=Choices(shape="completion"))
    assert [message["role"] for message in row["prompt"]] == ["user"]
    assert [message["role"] for message in row["completion"]] == ["assistant", "tool", "assistant"]


def test_sft_with_tokens_trains_on_what_the_policy_wrote(tmp_path):
    rows, summary = exported(tmp_path, "sft", [with_tokens(), rollout("none")], choices=Choices(tokens=True))
    (row,) = rows
    assert row["input_ids"] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert row["labels"] == [-100, -100, -100, 8, 9, -100, -100, 12]
    assert row["ludus"]["policy_versions"] == ["step-3", "step-4"]
    assert summary.left_out == {"no token ids: collect with --tokens": 1}


@pytest.mark.parametrize("to", [name for name in FORMATS if name not in ("hf", "verl", "csv")])
def test_masked_rollouts_stay_out_unless_asked_for(tmp_path, to):
    good, bad, masked = rollout(reward=1.0), rollout(repeat=1, reward=0.0), rollout(repeat=2, reward=2.0, mask="cut")
    rows, summary = exported(tmp_path, to, [good, bad, masked])
    assert "number 2" not in json.dumps(rows)
    assert summary.left_out["masked"] == 1
    asked, summary = exported(tmp_path, to, [good, bad, masked], filters=Filters(outcome="any"))
    assert "number 2" in json.dumps(asked)
    assert "masked" not in summary.left_out


def test_failed_rollouts_never_enter_a_training_set(tmp_path):
    from ludus import Failure

    failed = rollout(repeat=1)
    failed.fail(Failure("timeout", "too slow", stage="verify"))
    for to in ("sft", "dpo", "grpo"):
        _, summary = exported(tmp_path, to, [rollout(), failed], filters=Filters(outcome="any"))
        assert summary.left_out["failed"] == 1


def test_dpo_pairs_the_best_with_the_worst_of_interleaved_tasks(tmp_path):
    rewards = {"a": [0.5, 1.0, 0.0], "b": [0.2, 0.1, 0.9], "c": [1.0, 1.0, 1.0]}
    rollouts = [rollout(task, repeat, rewards[task][repeat]) for repeat in range(3) for task in rewards]
    rows, summary = exported(tmp_path, "dpo", rollouts)
    pairs = [(row["ludus"]["chosen"]["rollout_id"], row["ludus"]["rejected"]["rollout_id"]) for row in rows]
    assert pairs == [("a-1", "a-2"), ("b-2", "b-1")]
    assert rows[0]["prompt"] == [{"role": "user", "content": "How is the weather in Oslo?"}]
    assert rows[0]["chosen"] == [{"role": "assistant", "content": "It is cold, says number 1."}]
    assert rows[0]["rejected"] == [{"role": "assistant", "content": "It is cold, says number 2."}]
    assert summary.left_out == {"tie": 3, "neither best nor worst": 2}


def test_tasks_of_the_same_name_in_two_environments_are_not_paired(tmp_path):
    rollouts = [rollout("a", 0, 1.0, environment="x"), rollout("a", 1, 0.0, environment="y")]
    rows, summary = exported(tmp_path, "dpo", rollouts)
    assert rows == []
    assert summary.left_out == {"only rollout of its task": 2}


def test_a_margin_and_a_length_ratio_refuse_pairs(tmp_path):
    long = [message("cold " * 50)]
    rollouts = [
        rollout("close", 0, 0.5),
        rollout("close", 1, 0.4),
        rollout("long", 0, 1.0, items=long),
        rollout("long", 1, 0.0),
        rollout("fine", 0, 1.0, items=long),
        rollout("fine", 1, 1.0),
        rollout("fine", 2, 0.0),
    ]
    rows, summary = exported(tmp_path, "dpo", rollouts, pairs=PairRule(margin=0.3, length_ratio=2))
    assert [row["ludus"]["chosen"]["rollout_id"] for row in rows] == ["fine-1"]
    assert summary.left_out == {"margin": 2, "length ratio": 2, "neither best nor worst": 1}


def test_kto_labels_the_best_true_and_the_worst_false(tmp_path):
    rows, summary = exported(tmp_path, "kto", [rollout(reward=0.0), rollout(repeat=1, reward=1.0)])
    assert [(row["label"], row["ludus"]["reward"]) for row in rows] == [(True, 1.0), (False, 0.0)]
    assert (summary.used, summary.rows) == (2, 2)


def test_rm_holds_whole_conversations_and_the_margin(tmp_path):
    (row,), _ = exported(tmp_path, "rm", [rollout(reward=0.25), rollout(repeat=1, reward=1.0)])
    assert row["margin"] == 0.75
    assert [message["role"] for message in row["chosen"]] == ["user", "assistant"]


def test_grpo_rows_of_a_group_are_adjacent_and_masked_members_move_no_baseline(tmp_path):
    rollouts = [
        rollout("a", 0, 1.0),
        rollout("b", 0, 0.5),
        rollout("a", 1, 0.0),
        rollout("a", 2, 9.0, mask="cut"),
    ]
    rows, _ = exported(tmp_path, "grpo", rollouts, advantage="group_mean")
    assert [(row["group"].rpartition("/")[0], row["group_size"], row["advantage"]) for row in rows] == [
        ("weather/a", 2, 0.5),
        ("weather/a", 2, -0.5),
        ("weather/b", 1, 0.0),
    ]
    asked, _ = exported(tmp_path, "grpo", rollouts, advantage="group_mean", filters=Filters(outcome="any"))
    assert [row["advantage"] for row in asked] == [0.5, -0.5, 8.5, 0.0]


def test_a_filter_does_not_move_the_baseline_of_a_group(tmp_path):
    rollouts = [rollout("a", repeat, reward) for repeat, reward in enumerate((1.0, 0.0, 0.0, 0.0))]
    rows, _ = exported(tmp_path, "grpo", rollouts, advantage="group_mean", filters=Filters(reward=(1.0, None)))
    assert [row["advantage"] for row in rows] == [0.75]


def test_grpo_with_tokens_holds_masks_and_logprobs(tmp_path):
    (row,), summary = exported(tmp_path, "grpo", [with_tokens()], choices=Choices(tokens=True))
    assert "messages and tools as text" in summary.never_carried
    assert "token ids and logprobs" not in summary.never_carried
    assert row["completion_mask"] == [0, 0, 0, 1, 1, 0, 0, 1]
    assert row["logprobs"] == [0.0, 0.0, 0.0, -0.5, -0.25, 0.0, 0.0, -1.0]
    assert (row["sequence"], row["sequences"]) == (0, 1)


def test_grpo_with_tokens_keeps_the_threads_of_a_rollout_apart(tmp_path):
    rollouts = []
    for repeat, reward, own in ((0, 1.0, {}), (1, 0.0, {"agent-2": 1.0})):
        done = with_tokens("a", repeat, reward)
        call = {"items": 1, "at": 0, **TokenLog().add(Tokens([1], [2], [-0.5]))}
        kinds = {"agent-1": "agent", "agent-2": "agent", "side-1": "side"}
        done.threads = [Thread(name, kind, calls=[call]) for name, kind in kinds.items()]
        done.judge(Verdict(reward, turn_rewards=[0.0, reward], thread_rewards=own))
        rollouts.append(done)
    rows, _ = exported(tmp_path, "grpo", rollouts, choices=Choices(tokens=True), advantage="group_mean")
    read = [(row["thread"], row["reward"], row["turn_rewards"], row["advantage"]) for row in rows]
    assert read == [
        ("main", 1.0, [0.0, 1.0], 0.5),
        ("agent-1", 1.0, [], 0.5),
        ("agent-2", 1.0, [], 0.5),
        ("main", 0.0, [0.0, 0.0], -0.5),
        ("agent-1", 0.0, [], -0.5),
        ("agent-2", 1.0, [], 0.5),
    ]
    assert [row["ludus"]["reward"] for row in rows] == [1.0] * 3 + [0.0] * 3, "the origin has the rollout's"
    assert all(row.keys() == rows[0].keys() for row in rows)


def test_a_duplicated_line_joins_its_group_once(tmp_path):
    rollouts = [rollout("a", 0, 1.0), rollout("a", 1, 0.0), rollout("a", 0, 1.0)]
    rows, summary = exported(tmp_path, "grpo", rollouts)
    assert len(rows) == 2
    assert summary.left_out == {"duplicate": 1}


def test_openai_writes_receipts_to_a_second_file(tmp_path):
    shown = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    rollouts = [with_tools(), rollout("few", prompt=[*shown, {"role": "user", "content": "Weather?"}])]
    rows, summary = exported(tmp_path, "openai", rollouts)
    assert rows[0].keys() == {"messages", "tools", "parallel_tool_calls"}
    assert rows[0]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Oslo"}'
    assert rows[1]["messages"][1]["weight"] == 0
    origins = [json.loads(line) for line in (tmp_path / "out.jsonl.origins.jsonl").read_text().splitlines()]
    assert origins[0] == ORIGIN
    assert len(origins) == 2
    assert summary.not_carried == {"output[]: reasoning was dropped": 1}
    assert summary.outputs == [str(tmp_path / "out.jsonl"), str(tmp_path / "out.jsonl.origins.jsonl")]


@pytest.mark.parametrize("to", ["openai", "nemo", "nemo-customizer"])
def test_a_conversation_that_ends_with_a_tool_is_left_out_where_an_answer_must_be_last(tmp_path, to):
    items = [function_call("count_to", {"number": 3}, call_id="c"), function_call_output("c", "3")]
    rows, summary = exported(tmp_path, to, [rollout(items=items, tools=[COUNTER])])
    assert rows == []
    assert summary.left_out == {"does not end with an assistant message": 1}


def test_nemo_preference_ranks_the_better_completion_first(tmp_path):
    (row,), _ = exported(tmp_path, "nemo-preference", [rollout(reward=0.0), rollout(repeat=1, reward=1.0)])
    assert row["context"] == [{"role": "user", "content": "How is the weather in Oslo?"}]
    assert [each["rank"] for each in row["completions"]] == [0, 1]
    assert row["completions"][0]["completion"] == [{"role": "assistant", "content": "It is cold, says number 1."}]


def test_csv_is_one_line_a_rollout_and_no_cell_is_a_formula(tmp_path):
    source = write(tmp_path / "r.jsonl", [rollout(items=[message("=HYPERLINK(1)")]), rollout(repeat=1, reward=-1.0)])
    export(source, "csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first["answer"] == "'=HYPERLINK(1)"
    assert (second["reward"], second["rollout_id"], second["output_tokens"]) == ("-1.0", "t-1", "5")
    assert second["receipt"].startswith("aaaaaaaaaaaa.")


def test_a_call_whose_arguments_are_not_an_object_is_left_out_and_counted(tmp_path):
    items = [function_call("count_to", '{"number": ', call_id="c"), function_call_output("c", "bad"), message("Oh.")]
    broken = rollout("broken", items=items, tools=[COUNTER])
    rows, summary = exported(tmp_path, "sft", [broken, rollout()])
    assert len(rows) == 1
    assert summary.left_out == {"arguments of a call are not a JSON object": 1}
    kept, _ = exported(tmp_path, "openai", [broken])
    assert kept[0]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"number": '


def test_what_chat_cannot_hold_is_counted_by_place(tmp_path):
    hidden = {**reasoning("thought"), "encrypted_content": "gAAA"}
    rollouts = [rollout("a", repeat, items=[hidden, message("cold")]) for repeat in range(3)]
    _, summary = exported(tmp_path, "sft", rollouts)
    assert summary.not_carried == {"output[].encrypted_content: chat has no place for it": 3}
    assert "timings" in summary.never_carried


@pytest.mark.parametrize(
    ("filters", "kept", "reason"),
    [
        (Filters(reward=(0.5, None)), ["a-0", "b-0"], "reward"),
        (Filters(reward=(None, 0.5)), ["a-1"], "reward"),
        (Filters(environments=("other",)), ["b-0"], "environment"),
        (Filters(stop_reasons=("max_turns",)), ["a-1"], "stop reason"),
        (Filters(receipts=("dddd",)), ["b-0"], "receipt"),
        (Filters(length=(None, 10)), ["b-0"], "length"),
        (Filters(pass_rate=(0.4, 0.6)), ["a-0", "a-1"], "pass rate"),
        (Filters(pass_rate=(0.9, None)), ["b-0"], "pass rate"),
    ],
)
def test_filters_keep_what_they_say_and_name_the_reason(tmp_path, filters, kept, reason):
    rollouts = [
        rollout("a", 0, 1.0),
        rollout("b", 0, 1.0, environment="other", receipt="dddd.e.f", items=[message("cold")]),
        rollout("a", 1, 0.0, stop_reason="max_turns"),
    ]
    rows, summary = exported(tmp_path, "sft", rollouts, filters=filters)
    assert sorted(row["ludus"]["rollout_id"] for row in rows) == kept
    assert summary.left_out == {reason: 3 - len(kept)}


def test_the_pass_rate_uses_the_pass_reward_of_the_run(tmp_path):
    (tmp_path / "run.json").write_text('{"options": {"pass_reward": {"weather": 0.5}}}')
    rows, _ = exported(tmp_path, "sft", [rollout(reward=0.6)], filters=Filters(pass_rate=(1.0, None)))
    assert len(rows) == 1


def test_an_unfinished_export_leaves_no_file(tmp_path):
    source = write(tmp_path / "rollouts.jsonl", [rollout()])
    source.write_bytes(source.read_bytes() + b"{broken\n" + source.read_bytes())
    with pytest.raises(UserError, match="rollouts.jsonl:2: not JSON"):
        export(source, "sft", tmp_path / "out.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rollouts.jsonl"]


def test_a_torn_last_line_is_left_out(tmp_path):
    source = write(tmp_path / "rollouts.jsonl", [rollout()])
    source.write_bytes(source.read_bytes() + b'{"rollout_id": "t-')
    assert export(source, "sft", tmp_path / "out.jsonl").rows == 1


def test_existing_outputs_foreign_folders_and_the_run_itself_are_refused(tmp_path):
    source = write(tmp_path / "run" / "rollouts.jsonl", [rollout()])
    target = tmp_path / "out.jsonl"
    export(source, "sft", target)
    with pytest.raises(UserError, match="exists already. Choose another --output or add --overwrite"):
        export(source, "sft", target)
    for output in (source, source.parent):
        with pytest.raises(UserError, match="holds the rollouts that are exported"):
            export(source, "hf", output, overwrite=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for to in ("hf", "sft"):
        with pytest.raises(UserError, match="is a folder that no export made"):
            export(source, to, mine, overwrite=True)
    assert (mine / "thesis.txt").exists()


def test_rollouts_of_nemo_gym_are_exported_with_their_tokens(tmp_path):
    item = {**message("cold"), "prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.1]}
    row = {"responses_create_params": {"input": "Weather?"}, "response": {"output": [item]}, "reward": 1}
    source = tmp_path / "theirs.jsonl"
    source.write_text(json.dumps(row) + "\n")
    export(source, "sft", tmp_path / "text.jsonl")
    export(source, "sft", tmp_path / "ids.jsonl", choices=Choices(tokens=True))
    assert json.loads((tmp_path / "text.jsonl").read_text())["messages"][1] == {"role": "assistant", "content": "cold"}
    assert json.loads((tmp_path / "ids.jsonl").read_text())["labels"] == [-100, -100, 3]


def test_integers_of_any_size_in_arguments_are_exact(tmp_path):
    items = [function_call("count_to", '{"number": 123456789012345678901234567890}', call_id="c"), message("ok")]
    (row,), _ = exported(tmp_path, "sft", [rollout(items=items, tools=[COUNTER])])
    call = row["messages"][1]["tool_calls"][0]
    assert call["function"]["arguments"] == {"number": 123456789012345678901234567890}


def test_arguments_with_a_number_beyond_all_floats_are_left_out(tmp_path):
    items = [function_call("count_to", '{"number": 1e400}', call_id="c"), message("Done.")]
    rows, summary = exported(tmp_path, "sft", [rollout(items=items, tools=[COUNTER])])
    assert rows == []
    assert summary.left_out == {"arguments of a call are not a JSON object": 1}


def test_equal_tools_are_told_from_tools_that_python_calls_equal(tmp_path):
    tools = [{"type": "function", "name": "f", "parameters": {"maximum": most}} for most in (1, 1.0, True, 1)]
    offered = [rollout(f"t{number}", tools=[tool]) for number, tool in enumerate(tools)]
    rows, _ = exported(tmp_path, "sft", offered)
    found = [row["tools"][0]["function"]["parameters"]["maximum"] for row in rows]
    assert [(value, type(value)) for value in found] == [(1, int), (1.0, float), (True, bool), (1, int)]
