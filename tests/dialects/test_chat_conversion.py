"""Items and requests go to Chat Completions and come back as they were, or the converter says what was lost."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import (
    TOKENS,
    broken,
    calls,
    conversations,
    empty,
    json_objects,
    names,
    normal,
    refusing,
    respelled,
    said,
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
from ludus.model import Request
from ludus.response import function_call, function_call_output, message, reasoning
from ludus.task import Task

DETAILS = ChatStyle(reasoning="reasoning_details")
THINK = ChatStyle(reasoning="think")
STYLES = [OPEN, ChatStyle(reasoning="reasoning"), DETAILS, THINK]

ASKED = {"type": "message", "role": "user", "content": "Weather?"}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
SAID = {"type": "message", "role": "assistant", "content": "Let me see."}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
TOLD = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def there_and_back(items: list[Any], style: ChatStyle = OPEN) -> tuple[list[Any], list[str]]:
    lost: list[str] = []
    return from_messages(to_messages(items, style, lost), style, lost), lost


# --- items and messages


@settings(deadline=None)
@given(st.sampled_from(STYLES), conversations())
def test_what_chat_can_hold_comes_back_as_it_was(style, items):
    assert there_and_back(items, style) == (items, [])


@settings(deadline=None)
@given(conversations(reasoning=False))
def test_what_openai_takes_comes_back_as_it_was(items):
    items = [{**item, "role": "developer"} if item.get("role") == "system" else item for item in items]
    assert there_and_back(items, OPENAI) == (items, [])


one_text = st.sampled_from([style for style in STYLES if style is not DETAILS])


@settings(deadline=None)
@given(one_text, conversations().flatmap(lambda items: st.tuples(*map(respelled, items))))
def test_spellings_that_mean_the_same_are_no_loss(style, items):
    assert there_and_back(list(items), style) == ([normal(item) for item in items], [])


pieces = st.sampled_from([THOUGHT, SAID, CALL, TOLD, ASKED, empty, {"type": "web_search_call", "id": "ws_1"}])
pieces |= said | calls | words.map(lambda text: {**SAID, "content": f"<think>{text}"})
pieces |= st.sampled_from(
    [
        {**THOUGHT, "encrypted_content": "gAAAA"},
        {**THOUGHT, "summary": [*THOUGHT["summary"], *THOUGHT["summary"]]},
        {**THOUGHT, "summary": []},
        {**THOUGHT, "content": [{"type": "reasoning_text", "text": "raw"}]},
        {**THOUGHT, "status": "incomplete"},
        {**THOUGHT, "id": "rs_1"},
        {**SAID, "status": "incomplete"},
        {**SAID, "phase": "commentary"},
        {**SAID, "content": [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "yes"}]},
        {**SAID, "content": [{"type": "output_text", "text": "x", "annotations": [{"type": "file_path"}]}]},
        {**SAID, "content": "a</think>b"},
        {**SAID, "content": [{"type": "output_text", "text": ""}, {"type": "refusal", "refusal": "no"}]},
        {**SAID, "content": [{"type": "refusal", "refusal": "no"}]},
        {**CALL, "namespace": "tools"},
        {**CALL, **TOKENS},
        {**ASKED, "role": "developer"},
        {**ASKED, "content": [{"type": "input_image", "file_id": "file-1", "detail": "auto"}]},
        {**ASKED, "content": [{"type": "input_file", "file_url": "https://example.org/a.pdf"}]},
        {**TOLD, "status": "incomplete"},
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*STYLES, OPENAI]), st.lists(pieces, max_size=6))
def test_something_is_listed_as_lost_exactly_when_something_differs(style, items):
    back, lost = there_and_back(items, style)
    if style is not DETAILS:
        items = [normal(item) for item in items]
    assert (back == items) == (lost == []), lost


@pytest.mark.parametrize(
    ("item", "listed"),
    [
        ({**THOUGHT, "encrypted_content": "gAAAA"}, "input[1].encrypted_content: chat has no place for it"),
        ({**THOUGHT, "reasoning_details": [{"type": "x"}]}, "input[1].reasoning_details: chat has no place for it"),
        ({**SAID, "phase": "commentary"}, "input[1].phase: chat has no place for it"),
        ({**SAID, "status": "incomplete"}, "input[1].status: chat has no place for it"),
        ({**CALL, "namespace": "tools"}, "input[1].namespace: chat has no place for it"),
        ({**TOLD, "caller": {"type": "direct"}}, "input[1].caller: chat has no place for it"),
    ],
)
def test_a_lost_field_is_named_and_nothing_else_changes(item, listed):
    field = listed.partition(":")[0].rpartition(".")[2]
    without = {key: value for key, value in item.items() if key != field}
    assert there_and_back([ASKED, item]) == ([ASKED, without], [listed])


@pytest.mark.parametrize(
    ("part", "listed"),
    [
        ({"type": "input_image", "file_id": "f"}, "input[0].content[1]: chat takes an image by URL only"),
        ({"type": "input_file", "file_url": "u"}, "input[0].content[1]: chat takes a file by its data or its id only"),
    ],
)
def test_a_lost_part_is_named_and_nothing_else_changes(part, listed):
    text = {"type": "input_text", "text": "Look:"}
    assert there_and_back([{**ASKED, "content": [text, part]}]) == ([{**ASKED, "content": "Look:"}], [listed])


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


def test_items_that_chat_does_not_know_are_listed():
    for kind in ONLY_IN_RESPONSES:
        listed = [f"input[1]: chat has no place for an item of type {kind}"]
        assert there_and_back([ASKED, {"type": kind, "id": "x", "call_id": "c"}, SAID]) == ([ASKED, SAID], listed)


def test_a_turn_becomes_one_message():
    messages = to_messages([ASKED, THOUGHT, SAID, CALL, {**CALL, "call_id": "c2"}, TOLD, {**TOLD, "call_id": "c2"}])
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


def test_an_order_that_chat_cannot_hold_is_listed():
    lost: list[str] = []
    (turn,) = to_messages([CALL, SAID, THOUGHT], lost=lost)
    assert (turn["content"], turn["reasoning_content"], len(turn["tool_calls"])) == ("Let me see.", "Hm.", 1)
    order = "chat puts reasoning before text, and text before calls"
    assert lost == [f"input[1]: {order}", f"input[2]: {order}"]


def test_two_texts_of_a_turn_stay_two_texts_in_one_message():
    lost: list[str] = []
    (turn,) = to_messages([SAID, SAID], lost=lost)
    assert turn["content"] == [{"type": "text", "text": "Let me see."}] * 2
    assert lost == ["input[1]: it was joined to the message before it"]


def test_tokens_stay_with_their_model_call():
    items = [{**SAID, **TOKENS}, {**SAID, **TOKENS}]
    messages = to_messages(items)
    assert [turn["generation_token_ids"] for turn in messages] == [[3], [3]]
    assert from_messages(messages) == items


def test_a_server_that_takes_no_reasoning_gets_none():
    lost: list[str] = []
    assert to_messages([THOUGHT, CALL], OPENAI, lost)[0].keys() == {"role", "content", "tool_calls"}
    assert to_messages([THOUGHT], OPENAI, lost) == []
    assert lost == ["input[0]: this chat server takes no reasoning"] * 2


def test_tagged_reasoning_is_read_as_models_write_it():
    def read(text: str) -> list[Any]:
        return from_messages([{"role": "assistant", "content": text}], THINK)

    assert read("<think>\nHm.\n</think>\n\nYes.") == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "\nHm.\n"}]},
        {"type": "message", "role": "assistant", "content": "\n\nYes."},
    ]
    assert read("Hm.</think>Yes.") == [THOUGHT, {**SAID, "content": "Yes."}]  # the template opened the tag
    assert read("<think>Hm.") == [{**THOUGHT, "status": "incomplete"}]  # the answer was cut
    assert read("Use <think> tags.") == [{**SAID, "content": "Use <think> tags."}]
    assert to_messages([THOUGHT, SAID], THINK) == [{"role": "assistant", "content": "<think>Hm.</think>Let me see."}]


def test_reasoning_details_that_we_cannot_rebuild_go_back_unchanged():
    details = [
        {"type": "reasoning.text", "text": "Hm.", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "abc", "id": "r1", "format": "x", "index": 1},
    ]
    turn = {"role": "assistant", "content": "Yes.", "reasoning": "Hm.", "reasoning_details": details}
    items = from_messages([turn])
    assert items[0]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert to_messages(items, DETAILS)[0]["reasoning_details"] == details


def test_reasoning_details_hold_what_a_text_cannot():
    first = {
        **THOUGHT,
        "id": "rs_1",
        "encrypted_content": "gAAAA",
        "content": [{"type": "reasoning_text", "text": "r"}],
    }
    second = {**THOUGHT, "id": "rs_2", "summary": [*THOUGHT["summary"], *THOUGHT["summary"]]}
    assert there_and_back([first, second, SAID], DETAILS) == ([first, second, SAID], [])


def test_both_spellings_of_chat_content_are_read():
    turn = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": "https://x"}]}
    assert from_messages([turn, picture]) == [
        {**SAID, "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {**ASKED, "content": [{"type": "input_image", "image_url": "https://x"}]},
    ]


def test_what_our_own_helpers_make_is_carried():
    items = [
        reasoning("Hm."),
        message("Yes."),
        function_call("f", {"a": 1}, call_id="c"),
        function_call_output("c", "1"),
    ]
    assert there_and_back(items) == ([normal(item) for item in items], [])


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


def request_there_and_back(params: dict[str, Any], items: list[Any]) -> tuple[dict[str, Any], list[str]]:
    lost: list[str] = []
    return request_from_chat(to_chat(Request(items, params=params), {}, lost=lost), lost=lost), lost


@settings(deadline=None)
@given(params_strategy, conversations())
def test_a_request_comes_back_as_it_was(params, items):
    assert request_there_and_back(params, items) == ({**params, "input": items}, [])


@settings(deadline=None)
@given(params_strategy, losses)
def test_a_field_of_a_request_is_listed_exactly_when_it_is_lost(params, more):
    asked = {**params, **more}
    back, lost = request_there_and_back(asked, [ASKED])
    assert (back == {**asked, "input": [ASKED]}) == (lost == []), lost
    kept = {key: value for key, value in asked.items() if not any(entry.startswith(key) for entry in lost)}
    assert {key: back.get(key) for key in kept} == kept


def test_a_request_is_spelled_as_chat_spells_it():
    tool = {"type": "function", "name": "weather", "description": "d", "parameters": {}, "strict": True}
    shape = {"type": "json_schema", "name": "n", "schema": {}, "strict": True}
    request = Request(
        "Weather?",
        instructions="Be brief.",
        max_output_tokens=9,
        tools=[tool],
        tool_choice={"type": "function", "name": "weather"},
        text={"format": shape, "verbosity": "low"},
        reasoning={"effort": "high"},
        top_logprobs=3,
        user=None,
    )
    body = to_chat(request, {"model": "m", "temperature": 0.5}, style=OPENAI)
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
    assert to_chat(request, {})["max_tokens"] == 9


def test_a_row_may_spell_its_tools_as_chat_does():
    tool = {"type": "function", "function": {"name": "weather"}}
    body = to_chat(Request("?", tools=[tool], tool_choice=tool), {})
    assert (body["tools"], body["tool_choice"]) == ([tool], tool)


def test_a_chat_request_to_us_loses_only_what_it_lists():
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
        "input": [{**ASKED, "content": "?"}],
        "max_output_tokens": 6,
        "stream": True,
        "logit_bias": {"1": 2},
    }
    assert [entry.partition(":")[0] for entry in lost] == ["n", "functions", "max_tokens"]


@pytest.mark.parametrize("key", ["previous_response_id", "conversation", "prompt"])
def test_a_conversation_that_is_elsewhere_is_refused(key):
    with pytest.raises(Failure) as refused:
        to_chat(Request("?", params={key: "x"}), {})
    assert refused.value.kind == "bad_request"


# --- whatever comes

WHOLE = {
    "input": [ASKED, THOUGHT, {**SAID, "content": [{"type": "output_text", "text": "a"}]}, {**CALL, **TOKENS}, TOLD],
    "instructions": "i",
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*STYLES, OPENAI]), broken(WHOLE))
def test_any_row_is_converted_or_refused(style, params):
    try:
        task = Task(responses_create_params=params)
    except ValueError:
        return
    rest = {key: value for key, value in task.responses_create_params.items() if key != "input"}
    with refusing("bad_request"):
        to_chat(Request(task.input, params=rest), {}, style=style)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(STYLES), st.data())
def test_any_body_posted_to_us_is_converted_or_refused(style, data):
    body = to_chat(
        Request(WHOLE["input"], params={key: WHOLE[key] for key in WHOLE if key != "input"}), {}, style=style
    )
    with refusing("bad_request"):
        request_from_chat(data.draw(broken(body)), style=style)
