"""A replayed rollout gives each model call the answer that the model wrote in it."""

from __future__ import annotations

from ludus.models.replay import answers
from ludus.response import function_call, message


def test_a_message_that_a_program_wrote_is_not_replayed_as_the_models_answer() -> None:
    invented, first, second = message("from the program"), message("first"), message("second")
    output = [invented, first, {"role": "user", "content": "go on"}, second]
    calls = [{"items": 1, "at": 1}, {"items": 1, "at": 3}]
    assert answers({"response": {"output": output}, "model_calls": calls}) == [[first], [second]]


def test_tool_outputs_and_user_messages_are_not_part_of_an_answer() -> None:
    call, output = (
        function_call("add", {}, call_id="1"),
        {"type": "function_call_output", "call_id": "1", "output": "2"},
    )
    trajectory = [call, output, {"role": "user", "content": "and?"}, message("done")]
    row = {"response": {"output": trajectory}, "model_calls": [{"items": 1}, {"items": 1}]}
    assert answers(row) == [[call], [message("done")]]


def test_a_user_message_whose_type_is_null_is_not_part_of_an_answer() -> None:
    shown = {"type": None, "role": "user", "content": "and?"}
    row = {"response": {"output": [message("one"), shown, message("two")]}, "model_calls": [{"items": 1}, {"items": 1}]}
    assert answers(row) == [[message("one")], [message("two")]]
