"""Conversations that NeMo Gym recorded: the customer's closing turn is found, and nothing is scored without a judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.agents.user import STOP, TRANSFER
from ludus.environments.conversational_tool_use_simulation.endings import recorded_ending
from ludus.environments.conversational_tool_use_simulation.resources import Simulation
from ludus.environments.conversational_tool_use_simulation.test_conversational_tool_use_simulation import (
    ACCIDENT,
    FOUND,
    MOVE,
    NO,
    YES,
    recording,
    with_models,
)
from ludus.errors import UserError
from ludus.rescore.rescoring import rescore
from ludus.response import Response, message

Row = dict[str, Any]


def said(source: str, text: str, kind: str = "text", key: str = "content") -> Row:
    return {"type": kind, "source": source, key: text}


def from_elsewhere(row: Row, closing: str | None, key: str = "content", **trajectory: Any) -> Row:
    """A conversation as NeMo Gym stores it: the closing turn is only in `result.trajectory`."""
    turns = [said("user", "Hello.", key=key), said("agent", "Done.", key=key)]
    if closing is not None:
        turns.append(said("user", closing, key=key))
    state = "complete" if closing is not None else "incomplete"
    result = {"trajectory": {"messages": turns, "terminal_state": state, **trajectory}}
    params = row["responses_create_params"]
    spoken = {**params, "input": [*params["input"], {"role": "user", "content": "Hello."}]}
    response = Response.of(message("Done.")).data
    return {**row, "responses_create_params": spoken, "response": response, "reward": 1.0, "result": result}


def scored(folder: Path, row: Row, judge: Any = YES, **settings: Any) -> Row:
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    chosen = {f"resources.{key}": value for key, value in settings.items()}
    output = folder / "again.jsonl"
    rescore(folder / "rows.jsonl", with_models(FOUND, judge), output=output, settings=chosen)
    rescored: Row = json.loads(output.read_text())
    return rescored


def failure(rescored: Row) -> str | None:
    assert "reward" not in rescored
    return rescored["kind"] if rescored["outcome"] == "failed" else None


@pytest.mark.parametrize("key", ["content", "text", "message"])
def test_the_customers_closing_turn_is_found_in_the_stored_trajectory(tmp_path: Path, key: str) -> None:
    requests: list[str] = []
    rescored = scored(tmp_path, from_elsewhere(MOVE, f"Thanks! {STOP}", key), judge=recording(requests, YES))
    assert (rescored["reward"], rescored["terminal_state"], rescored["user_messages"]) == (1.0, "complete", 1)
    assert any(STOP in request for request in requests)
    assert scored(tmp_path, from_elsewhere(MOVE, STOP, key), judge=NO)["reward"] == 0.0


def test_a_transfer_in_the_stored_trajectory_is_compared_with_the_scenario(tmp_path: Path) -> None:
    settings = {"enforce_transfer_ground_truth": True}
    for row, closing, reward in ((MOVE, TRANSFER, 0.0), (ACCIDENT, TRANSFER, 1.0), (ACCIDENT, STOP, 0.0)):
        rescored = scored(tmp_path, from_elsewhere(row, closing), **settings)
        assert (rescored["reward"], rescored["transferred"]) == (reward, closing == TRANSFER)


def test_a_closing_turn_at_the_end_of_the_output_is_found(tmp_path: Path) -> None:
    row = from_elsewhere(MOVE, None)
    del row["result"]
    row["response"]["output"].append({"role": "user", "content": STOP})
    assert scored(tmp_path, row)["reward"] == 1.0


@pytest.mark.parametrize(
    ("reasons", "labels", "outcome", "invalid"),
    [
        (["invalid_agent_tool_call"], ["agent_failure"], "completed", ["invalid_agent_tool_call"]),
        (["invalid_environment_tool_execution"], ["tool_failure"], "masked", ["invalid_environment_tool_execution"]),
        (["excessive_length"], ["trajectory_failure"], "completed", ["excessive_length"]),
        (["message_generation_error"], ["user_failure"], "masked", ["message_generation_error"]),
        (["message_generation_error"], ["agent_failure"], "completed", ["message_generation_error"]),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_the_stored_reason_of_an_unfinished_conversation_is_used(
    tmp_path: Path, reasons: list[str], labels: list[str], outcome: str, invalid: list[str], beside: bool
) -> None:
    fields: dict[str, Any] = {"invalid_reasons": reasons, "failure_labels": labels}
    row = {**from_elsewhere(MOVE, None), **fields} if beside else from_elsewhere(MOVE, None, **fields)
    rescored = scored(tmp_path, row)
    assert (rescored["outcome"], rescored["reward"], rescored["invalid_reasons"]) == (outcome, 0.0, invalid)


NOTHING: list[Any] = [None, {}, {"trajectory": None}, {"trajectory": []}, {"trajectory": {"messages": 3}}]


@pytest.mark.parametrize("result", NOTHING)
def test_a_record_that_does_not_show_how_it_ended_is_not_scored(tmp_path: Path, result: Any) -> None:
    assert failure(scored(tmp_path, {**from_elsewhere(MOVE, None), "result": result})) == "bad_row"


@pytest.mark.parametrize("closing", [STOP, None])
def test_without_a_judge_a_stored_conversation_is_refused_and_gets_no_0(tmp_path: Path, closing: str | None) -> None:
    with pytest.raises(UserError, match="these rows need a judge"):
        scored(tmp_path, from_elsewhere(MOVE, closing), judge=None)
    free = scored(tmp_path, from_elsewhere(MOVE, STOP), judge=None, enable_llm_judge=False)
    assert free["reward"] == 1.0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([STOP, "user", "text"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["messages", "source", "type", "content", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(json_values, st.booleans())
def test_no_stored_trajectory_crashes_and_only_the_customer_can_end_it(value: Any, inside: bool) -> None:
    turns = [*(value if isinstance(value, list) else [value]), said("agent", STOP), said("user", STOP, "tool_call")]
    result = {"trajectory": {"messages": turns} if inside else turns}
    task = Simulation.Task.model_validate({**MOVE, "result": result})
    ending = recorded_ending(task, Response.of(message(STOP)))
    spoken = [turn for turn in turns if isinstance(turn, dict) and turn.get("source") == "user"]
    texts = [turn.get("content") for turn in spoken if turn.get("type") == "text"]
    ended = bool(texts) and isinstance(texts[-1], str) and STOP in texts[-1]
    assert (ending is not None) == ended
