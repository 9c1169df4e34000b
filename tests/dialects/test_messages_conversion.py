"""Anthropic Messages requests and answers are converted, and `lost` lists what a conversion changed."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from conversations import TOKENS, broken, json_objects, may_fail_as, names, normalised, words
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.dialects.chat import to_chat
from ludus.dialects.messages import answer_from_messages, answer_to_messages, request_from_messages
from ludus.errors import Failure
from ludus.response import Response, function_call, message, reasoning

USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 10,
}
BODY: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 100,
    "system": "Be brief.",
    "temperature": 0.5,
    "top_k": 5,
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u1"},
    "service_tier": "standard_only",
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "thinking": {"type": "disabled"},
    "stream": False,
    "tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "redacted_thinking", "data": "sealed"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "c2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
                {"type": "text", "text": "And this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
                {"type": "image", "source": {"type": "file", "file_id": "f1"}},
                {
                    "type": "document",
                    "title": "a.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
                },
                {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
            ],
        },
    ],
}


def test_a_request_is_converted_without_loss():
    lost: list[str] = []
    params = request_from_messages(BODY, lost=lost)
    hi = base64.b64encode(b"hi").decode()
    assert lost == []
    assert params.pop("input") == [
        {"type": "message", "role": "user", "content": "Weather?"},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "sig",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
        {"type": "message", "role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "And this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
                {"type": "input_image", "image_url": "https://x/a.png"},
                {"type": "input_image", "file_id": "f1"},
                {"type": "input_file", "file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"},
                {"type": "input_file", "file_url": "https://x/a.pdf"},
                {"type": "input_file", "file_data": f"data:text/plain;base64,{hi}"},
            ],
        },
    ]
    assert params == {
        "model": "claude",
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "temperature": 0.5,
        "top_k": 5,
        "stop": ["END"],
        "user": "u1",
        "service_tier": "default",
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}},
        "stream": False,
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": True,
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


@pytest.mark.parametrize(
    ("choice", "params"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any", "disable_parallel_tool_use": False}, {"tool_choice": "required", "parallel_tool_calls": True}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "name": "f"}}),
    ],
)
def test_a_tool_choice_is_converted(choice, params):
    asked = request_from_messages({"messages": [], "tool_choice": choice})
    assert asked == {"input": [], **params}


def test_a_system_prompt_of_several_texts_becomes_a_message_of_several_parts():
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    params = request_from_messages({"messages": [], "system": blocks})
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert params == {"input": [{"type": "message", "role": "system", "content": parts}]}
    assert request_from_messages({"messages": [], "system": blocks[:1]})["instructions"] == "a"


def test_tool_results_and_texts_of_a_user_keep_their_order():
    content = [
        {"type": "text", "text": "a"},
        {"type": "tool_result", "tool_use_id": "c"},
        {"type": "text", "text": "b"},
    ]
    items = request_from_messages({"messages": [{"role": "user", "content": content}]})["input"]
    assert [item.get("content", item.get("output")) for item in items] == ["a", "", "b"]


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"metadata": {"other": "x"}}, "metadata.other"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "f", "cache_control": {"type": "ephemeral"}}]}, "tools[0].cache_control"),
        (
            {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            "system[0].cache_control",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "content"}}]}]},
            "messages[0].content[0]",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": True}]}
                ]
            },
            "messages[0].content[0].is_error",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a", "citations": [{}]}]}]},
            "messages[0].content[0].citations",
        ),
    ],
)
def test_fields_that_responses_cannot_hold_are_listed_as_lost(change, listed):
    lost: list[str] = []
    request_from_messages({"messages": [], **change}, lost=lost)
    assert [entry.partition(": ")[0] for entry in lost] == [listed]


def test_a_messages_request_can_be_converted_on_to_chat():
    params = request_from_messages(BODY)
    body = to_chat(params.pop("input"), params)
    assert [turn["role"] for turn in body["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]


# --- answers

thinking = st.fixed_dictionaries({"type": st.just("thinking"), "thinking": words, "signature": st.just("") | words})
redacted = st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": words})
text_blocks = st.fixed_dictionaries({"type": st.just("text"), "text": words})
uses = st.fixed_dictionaries({"type": st.just("tool_use"), "id": words, "name": names, "input": json_objects})
endings = st.sampled_from(["max_tokens", "refusal", "stop_sequence", None])


@st.composite
def answers(draw: Any) -> dict[str, Any]:
    """Messages as a server sends them."""
    content = draw(st.lists(thinking | redacted | text_blocks | uses, max_size=6))
    stop = draw(endings)
    called = any(block["type"] == "tool_use" for block in content)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": content,
        "stop_reason": stop or ("tool_use" if called else "end_turn"),
        "stop_sequence": "END" if stop == "stop_sequence" else None,
        "usage": {
            "input_tokens": draw(st.integers(0, 9)),
            "output_tokens": 5,
            "cache_read_input_tokens": draw(st.integers(0, 9)),
            "cache_creation_input_tokens": 1,
            "output_tokens_details": {"thinking_tokens": 2},
            "service_tier": "standard",
        },
    }


@settings(deadline=None)
@given(answers())
def test_a_round_trip_keeps_a_messages_answer(answer):
    lost: list[str] = []
    response = answer_from_messages(answer, lost=lost)
    assert answer_to_messages(Response.checked(response).data, lost=lost) == answer
    assert lost == []


def parts(*texts: str) -> dict[str, Any]:
    return {**message(""), "content": [{"type": "output_text", "text": text, "annotations": []} for text in texts]}


calls = json_objects.map(lambda given: function_call("f", given, call_id="c"))
edge_cases = calls | st.sampled_from(
    [
        message("a"),
        message(""),
        parts("a", "b"),
        parts("a", ""),
        {**message("a"), "content": [{"type": "refusal", "refusal": "no"}]},
        {**message("a"), "status": "incomplete"},
        {**message("a"), **TOKENS},
        reasoning("Hm."),
        {**reasoning("Hm."), "encrypted_content": "sig"},
        {**reasoning("Hm."), "summary": []},
        {**reasoning("Hm."), "summary": [], "encrypted_content": "sealed"},
        {**reasoning("Hm."), "content": [{"type": "reasoning_text", "text": "raw"}]},
        function_call("f", "no JSON", call_id="c"),
        function_call("f", "[1]", call_id="c"),
        {"type": "web_search_call", "id": "ws"},
    ]
)


@given(
    st.lists(edge_cases, min_size=1, max_size=5),
    st.sampled_from([None, "max_output_tokens", "content_filter", "other"]),
)
def test_lost_is_empty_exactly_when_the_round_trip_changed_nothing(items, cut):
    fields = {"status": "incomplete", "incomplete_details": {"reason": cut}} if cut else {"incomplete_details": None}
    response = Response.of(*items, model="m", error=None, usage=USAGE, **fields).data
    lost: list[str] = []
    back = answer_from_messages(answer_to_messages(response, lost=lost), lost=lost)
    for data in (response, back):
        data["output"] = [normalised(item) for item in data["output"]]
        if cut:
            data["output"][-1].pop("status", None)
    assert (back == response) == (lost == []), lost


def test_a_full_context_makes_the_answer_incomplete():
    lost: list[str] = []
    answer = {"content": [{"type": "text", "text": "a"}], "stop_reason": "model_context_window_exceeded"}
    data = answer_from_messages(answer, lost=lost)
    assert Response(data).incomplete_reason == "max_output_tokens"
    assert [entry.partition(":")[0] for entry in lost] == ["stop_reason"]


def test_an_error_instead_of_an_answer_is_a_bad_response():
    with pytest.raises(Failure, match="overloaded"):
        answer_from_messages({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}})
    with pytest.raises(Failure, match="completed or incomplete"):
        answer_to_messages({"status": "failed", "output": []})


# --- malformed input

ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": BODY["messages"][1]["content"],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 1}},
}


@given(broken(ANSWER))
def test_a_malformed_answer_is_a_response_or_a_bad_response(answer):
    with may_fail_as("bad_response"):
        data = answer_from_messages(answer, lost=[])
        answer_to_messages(Response.checked(data).data)


@given(broken(answer_from_messages(ANSWER)))
def test_a_malformed_response_is_a_message_or_a_bad_request(data):
    try:
        response = Response.checked(data)
    except Failure:
        return
    with may_fail_as("bad_request"):
        answer_to_messages(response.data, lost=[])


@given(broken(BODY))
def test_a_malformed_messages_body_is_converted_or_a_bad_request(body):
    with may_fail_as("bad_request"):
        request_from_messages(body, lost=[])


@settings(deadline=None)
@given(answers())
def test_the_anthropic_sdk_parses_our_answers(answer):
    types = pytest.importorskip("anthropic.types", reason="needs the anthropic SDK: pip install anthropic")
    response = answer_from_messages(answer)
    read = types.Message.model_validate(answer_to_messages(response))
    assert read.stop_reason == answer["stop_reason"]


def test_the_anthropic_sdk_parses_an_answer_with_reasoning_text_and_a_call():
    types = pytest.importorskip("anthropic.types", reason="needs the anthropic SDK: pip install anthropic")
    response = Response.of(reasoning("Hm."), message("a"), function_call("f", {"a": 1}, call_id="c"), model="m")
    read = types.Message.model_validate(orjson.loads(orjson.dumps(answer_to_messages(response.data))))
    assert [block.type for block in read.content] == ["thinking", "text", "tool_use"]
