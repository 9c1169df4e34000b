"""A round trip through Chat Completions keeps items and requests, or `lost` lists what it changed."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import (
    TOKENS,
    assistant_messages,
    broken,
    calls,
    conversations,
    empty_message,
    equivalent,
    json_objects,
    may_fail_as,
    names,
    normalised,
    words,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.dialects.chat import (
    OPEN,
    OPENAI,
    ChatStyle,
    from_messages,
    request_from_chat,
    to_chat,
    to_messages,
)
from ludus.errors import Failure
from ludus.response import function_call, function_call_output, message, reasoning
from ludus.task import Task

DETAILS = ChatStyle(reasoning="reasoning_details")
THINK = ChatStyle(reasoning="think")
STYLES = [OPEN, ChatStyle(reasoning="reasoning"), DETAILS, THINK]

USER = {"type": "message", "role": "user", "content": "Weather?"}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
MESSAGE = {"type": "message", "role": "assistant", "content": "Let me see."}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def round_trip(items: list[Any], style: ChatStyle = OPEN) -> tuple[list[Any], list[str]]:
    lost: list[str] = []
    return from_messages(to_messages(items, style, lost), style, lost), lost


# --- items and messages


@settings(deadline=None)
@given(st.sampled_from(STYLES), conversations())
def test_a_round_trip_through_chat_keeps_every_item_that_chat_can_hold(style, items):
    assert round_trip(items, style) == (items, [])


@settings(deadline=None)
@given(conversations(reasoning=False))
def test_a_round_trip_in_openai_style_keeps_every_item_that_openai_accepts(items):
    items = [{**item, "role": "developer"} if item.get("role") == "system" else item for item in items]
    assert round_trip(items, OPENAI) == (items, [])


text_styles = st.sampled_from([style for style in STYLES if style is not DETAILS])


@settings(deadline=None)
@given(text_styles, conversations().flatmap(lambda items: st.tuples(*map(equivalent, items))))
def test_equivalent_items_convert_alike_and_list_no_loss(style, items):
    assert round_trip(list(items), style) == ([normalised(item) for item in items], [])


edge_cases = st.sampled_from(
    [REASONING, MESSAGE, CALL, OUTPUT, USER, empty_message, {"type": "web_search_call", "id": "ws_1"}]
)
edge_cases |= assistant_messages | calls | words.map(lambda text: {**MESSAGE, "content": f"<think>{text}"})
edge_cases |= st.sampled_from(
    [
        {**REASONING, "encrypted_content": "gAAAA"},
        {**REASONING, "summary": [*REASONING["summary"], *REASONING["summary"]]},
        {**REASONING, "summary": []},
        {**REASONING, "content": [{"type": "reasoning_text", "text": "raw"}]},
        {**REASONING, "status": "incomplete"},
        {**REASONING, "id": "rs_1"},
        {**MESSAGE, "status": "incomplete"},
        {**MESSAGE, "phase": "commentary"},
        {**MESSAGE, "content": [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "yes"}]},
        {**MESSAGE, "content": [{"type": "output_text", "text": "x", "annotations": [{"type": "file_path"}]}]},
        {**MESSAGE, "content": "a</think>b"},
        {**MESSAGE, "content": [{"type": "output_text", "text": ""}, {"type": "refusal", "refusal": "no"}]},
        {**MESSAGE, "content": [{"type": "refusal", "refusal": "no"}]},
        {**CALL, "namespace": "tools"},
        {**CALL, **TOKENS},
        {**USER, "role": "developer"},
        {**USER, "content": [{"type": "input_image", "file_id": "file-1", "detail": "auto"}]},
        {**USER, "content": [{"type": "input_file", "file_url": "https://example.org/a.pdf"}]},
        {**OUTPUT, "status": "incomplete"},
    ]
)


@given(st.sampled_from([*STYLES, OPENAI]), st.lists(edge_cases, max_size=6))
def test_lost_is_empty_exactly_when_the_round_trip_changed_nothing(style, items):
    back, lost = round_trip(items, style)
    if style is not DETAILS:
        items = [normalised(item) for item in items]
    assert (back == items) == (lost == []), lost


@pytest.mark.parametrize(
    ("item", "listed"),
    [
        ({**REASONING, "encrypted_content": "gAAAA"}, "input[1].encrypted_content: chat has no place for it"),
        ({**REASONING, "reasoning_details": [{"type": "x"}]}, "input[1].reasoning_details: chat has no place for it"),
        ({**MESSAGE, "phase": "commentary"}, "input[1].phase: chat has no place for it"),
        ({**MESSAGE, "status": "incomplete"}, "input[1].status: chat has no place for it"),
        ({**CALL, "namespace": "tools"}, "input[1].namespace: chat has no place for it"),
        ({**OUTPUT, "caller": {"type": "direct"}}, "input[1].caller: chat has no place for it"),
    ],
)
def test_a_lost_field_is_named_and_nothing_else_changes(item, listed):
    field = listed.partition(":")[0].rpartition(".")[2]
    without = {key: value for key, value in item.items() if key != field}
    assert round_trip([USER, item]) == ([USER, without], [listed])


@pytest.mark.parametrize(
    ("part", "listed"),
    [
        ({"type": "input_image", "file_id": "f"}, "input[0].content[1]: chat takes an image by URL only"),
        ({"type": "input_file", "file_url": "u"}, "input[0].content[1]: chat takes a file by its data or its id only"),
    ],
)
def test_a_lost_part_is_named_and_nothing_else_changes(part, listed):
    text = {"type": "input_text", "text": "Look:"}
    assert round_trip([{**USER, "content": [text, part]}]) == ([{**USER, "content": "Look:"}], [listed])


ONLY_IN_RESPONSES = [
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "computer_call",
    "computer_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "file_search_call",
    "image_generation_call",
    "item_reference",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "web_search_call",
]


def test_items_of_types_that_chat_lacks_are_listed_as_lost():
    for kind in ONLY_IN_RESPONSES:
        listed = [f"input[1]: chat has no place for an item of type {kind}"]
        assert round_trip([USER, {"type": kind, "id": "x", "call_id": "c"}, MESSAGE]) == ([USER, MESSAGE], listed)


def test_the_items_of_an_assistant_turn_become_one_message():
    messages = to_messages(
        [USER, REASONING, MESSAGE, CALL, {**CALL, "call_id": "c2"}, OUTPUT, {**OUTPUT, "call_id": "c2"}]
    )
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert messages == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": name, "type": "function", "function": function} for name in ("c1", "c2")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
    ]


def test_an_item_order_that_chat_cannot_hold_is_listed_as_lost():
    lost: list[str] = []
    (turn,) = to_messages([CALL, MESSAGE, REASONING], lost=lost)
    assert (turn["content"], turn["reasoning_content"], len(turn["tool_calls"])) == ("Let me see.", "Hm.", 1)
    order = "chat puts reasoning before text, and text before calls"
    assert lost == [f"input[1]: {order}", f"input[2]: {order}"]


def test_two_texts_of_a_turn_stay_two_texts_in_one_message():
    lost: list[str] = []
    (turn,) = to_messages([MESSAGE, MESSAGE], lost=lost)
    assert turn["content"] == [{"type": "text", "text": "Let me see."}] * 2
    assert lost == ["input[1]: it was joined to the message before it"]


def test_tokens_stay_with_their_model_call():
    items = [{**MESSAGE, **TOKENS}, {**MESSAGE, **TOKENS}]
    messages = to_messages(items)
    assert [turn["generation_token_ids"] for turn in messages] == [[3], [3]]
    assert from_messages(messages) == items


def test_reasoning_is_not_sent_to_a_server_that_refuses_it():
    lost: list[str] = []
    assert to_messages([REASONING, CALL], OPENAI, lost)[0].keys() == {"role", "content", "tool_calls"}
    assert to_messages([REASONING], OPENAI, lost) == []
    assert lost == ["input[0]: this chat server takes no reasoning"] * 2


def test_reasoning_in_think_tags_is_parsed():
    def read(text: str) -> list[Any]:
        return from_messages([{"role": "assistant", "content": text}], THINK)

    assert read("<think>\nHm.\n</think>\n\nYes.") == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "\nHm.\n"}]},
        {"type": "message", "role": "assistant", "content": "\n\nYes."},
    ]
    assert read("Hm.</think>Yes.") == [REASONING, {**MESSAGE, "content": "Yes."}]  # the template wrote the opening tag
    assert read("<think>Hm.") == [{**REASONING, "status": "incomplete"}]  # the answer was cut off
    assert read("Use <think> tags.") == [{**MESSAGE, "content": "Use <think> tags."}]
    assert to_messages([REASONING, MESSAGE], THINK) == [
        {"role": "assistant", "content": "<think>Hm.</think>Let me see."}
    ]


def test_reasoning_details_that_items_cannot_represent_are_sent_back_unchanged():
    details = [
        {"type": "reasoning.text", "text": "Hm.", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "abc", "id": "r1", "format": "x", "index": 1},
    ]
    turn = {"role": "assistant", "content": "Yes.", "reasoning": "Hm.", "reasoning_details": details}
    items = from_messages([turn])
    assert items[0]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert to_messages(items, DETAILS)[0]["reasoning_details"] == details


def test_reasoning_details_keep_ids_encrypted_content_and_several_summaries():
    first = {
        **REASONING,
        "id": "rs_1",
        "encrypted_content": "gAAAA",
        "content": [{"type": "reasoning_text", "text": "r"}],
    }
    second = {**REASONING, "id": "rs_2", "summary": [*REASONING["summary"], *REASONING["summary"]]}
    assert round_trip([first, second, MESSAGE], DETAILS) == ([first, second, MESSAGE], [])


def test_content_parts_and_image_urls_as_strings_are_read():
    turn = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": "https://x"}]}
    assert from_messages([turn, picture]) == [
        {**MESSAGE, "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {**USER, "content": [{"type": "input_image", "image_url": "https://x"}]},
    ]


def test_items_of_our_own_helpers_survive_the_round_trip():
    items = [
        reasoning("Hm."),
        message("Yes."),
        function_call("f", {"a": 1}, call_id="c"),
        function_call_output("c", "1"),
    ]
    assert round_trip(items) == ([normalised(item) for item in items], [])


# --- requests

schemas = st.just({"type": "object", "properties": {"city": {"type": "string"}}})
functions = st.fixed_dictionaries(
    {"type": st.just("function"), "name": names},
    optional={"description": words, "parameters": schemas, "strict": st.booleans()},
)
formats = st.sampled_from([{"type": "text"}, {"type": "json_object"}]) | st.fixed_dictionaries(
    {"type": st.just("json_schema"), "name": names, "schema": schemas}, optional={"strict": st.booleans()}
)
named = names.map(lambda name: {"type": "function", "name": name})
choices = (
    st.sampled_from(["auto", "none", "required"])
    | named
    | st.lists(named, max_size=2).map(lambda tools: {"type": "allowed_tools", "mode": "auto", "tools": tools})
)
alike = st.fixed_dictionaries(
    {"model": names},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0, 1),
        "max_output_tokens": st.integers(1, 9999),
        "metadata": st.dictionaries(names, words, max_size=2),
        "service_tier": st.just("flex"),
        "user": words,
        "store": st.booleans(),
        "seed": st.integers(0, 99),
        "stop": st.lists(words, max_size=2),
        "top_k": st.integers(1, 50),
        "chat_template_kwargs": json_objects,
        "prompt_cache_key": words,
        "text": st.fixed_dictionaries({"format": formats}, optional={"verbosity": st.just("low")}),
        "reasoning": st.just({"effort": "low"}),
        "include": st.just(["message.output_text.logprobs"]),
    },
)
with_tools = st.fixed_dictionaries(
    {"tools": st.lists(functions, min_size=1, max_size=3)},
    optional={"tool_choice": choices, "parallel_tool_calls": st.booleans()},
)
params_strategy = st.tuples(alike, st.just({}) | with_tools).map(lambda pair: {**pair[0], **pair[1]})
losses = st.fixed_dictionaries(
    {},
    optional={
        "truncation": st.just("auto"),
        "max_tool_calls": st.just(3),
        "background": st.just(True),
        "reasoning": st.just({"effort": "low", "summary": "auto"}),
        "include": st.just(["reasoning.encrypted_content"]),
        "tools": st.just([{"type": "web_search"}]),
        "tool_choice": st.just({"type": "web_search"}),
    },
)


def request_round_trip(params: dict[str, Any], items: list[Any]) -> tuple[dict[str, Any], list[str]]:
    lost: list[str] = []
    return request_from_chat(to_chat(items, params, lost=lost), lost=lost), lost


@settings(deadline=None)
@given(params_strategy, conversations())
def test_a_round_trip_keeps_every_parameter_of_a_request(params, items):
    assert request_round_trip(params, items) == ({**params, "input": items}, [])


@settings(deadline=None)
@given(params_strategy, losses)
def test_a_request_field_is_listed_as_lost_exactly_when_it_changed(params, more):
    asked = {**params, **more}
    back, lost = request_round_trip(asked, [USER])
    assert (back == {**asked, "input": [USER]}) == (lost == []), lost
    kept = {key: value for key, value in asked.items() if not any(entry.startswith(key) for entry in lost)}
    assert {key: back.get(key) for key in kept} == kept


def test_a_request_is_converted_to_the_field_names_of_chat():
    tool = {"type": "function", "name": "weather", "description": "d", "parameters": {}, "strict": True}
    shape = {"type": "json_schema", "name": "n", "schema": {}, "strict": True}
    asked = [{"role": "user", "content": "Weather?"}]
    params = dict(
        model="m",
        temperature=0.5,
        instructions="Be brief.",
        max_output_tokens=9,
        tools=[tool],
        tool_choice={"type": "function", "name": "weather"},
        text={"format": shape, "verbosity": "low"},
        reasoning={"effort": "high"},
        top_logprobs=3,
        user=None,
    )
    body = to_chat(asked, params, style=OPENAI)
    assert body == {
        "model": "m",
        "temperature": 0.5,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}],
        "max_completion_tokens": 9,
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "description": "d", "parameters": {}, "strict": True},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
        "verbosity": "low",
        "reasoning_effort": "high",
        "logprobs": True,
        "top_logprobs": 3,
    }
    assert to_chat(asked, params)["max_tokens"] == 9


def test_tools_in_the_nested_form_of_chat_pass_through():
    tool = {"type": "function", "function": {"name": "weather"}}
    body = to_chat([USER], {"tools": [tool], "tool_choice": tool})
    assert (body["tools"], body["tool_choice"]) == ([tool], tool)


def test_a_chat_request_is_converted_and_its_unsupported_fields_are_listed():
    lost: list[str] = []
    body = {
        "messages": [{"role": "user", "content": "?"}],
        "n": 2,
        "modalities": ["text"],
        "max_tokens": 5,
        "max_completion_tokens": 6,
        "stream": True,
        "stream_options": {"include_usage": True},
        "functions": [{"name": "f"}],
        "logit_bias": {"1": 2},
    }
    params = request_from_chat(body, lost=lost)
    assert params == {
        "input": [{**USER, "content": "?"}],
        "max_output_tokens": 6,
        "stream": True,
        "logit_bias": {"1": 2},
    }
    assert [entry.partition(":")[0] for entry in lost] == ["n", "functions", "max_tokens"]


@pytest.mark.parametrize("key", ["previous_response_id", "conversation", "prompt"])
def test_a_request_that_refers_to_a_stored_conversation_is_refused(key):
    with pytest.raises(Failure) as refused:
        to_chat([USER], {key: "x"})
    assert refused.value.kind == "bad_request"


# --- malformed input

WHOLE = {
    "input": [
        USER,
        REASONING,
        {**MESSAGE, "content": [{"type": "output_text", "text": "a"}]},
        {**CALL, **TOKENS},
        OUTPUT,
    ],
    "instructions": "i",
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
}


@given(st.sampled_from([*STYLES, OPENAI]), broken(WHOLE))
def test_a_malformed_row_is_converted_or_a_bad_request(style, params):
    try:
        task = Task(responses_create_params=params)
    except ValueError:
        return
    rest = {key: value for key, value in task.responses_create_params.items() if key != "input"}
    with may_fail_as("bad_request"):
        to_chat(task.input, rest, style=style)


@given(st.sampled_from(STYLES), st.data())
def test_a_malformed_chat_body_is_converted_or_a_bad_request(style, data):
    body = to_chat(WHOLE["input"], {key: WHOLE[key] for key in WHOLE if key != "input"}, style=style)
    with may_fail_as("bad_request"):
        request_from_chat(data.draw(broken(body)), style=style)
