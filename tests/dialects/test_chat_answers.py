"""A round trip between chat completions and Responses objects keeps both, or `lost` lists what it changed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from conversations import TOKENS, broken, may_fail_as, normalised, turns, words
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.dialects.chat import ChatStyle, answer_to_chat, from_chat
from ludus.errors import Failure
from ludus.response import Response, function_call, message, reasoning

STYLES = [ChatStyle(reasoning=place) for place in ("reasoning_content", "reasoning", "reasoning_details", "think")]
LOGPROBS = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
CITATION = {"type": "url_citation", "url": "https://x", "title": "t", "start_index": 0, "end_index": 1}
TEXT = {"type": "output_text", "text": "a"}
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 10,
}


def completion(message: dict[str, Any], finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, "logprobs": None}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": "m", "choices": [choice], **fields}


def comparable(response: dict[str, Any]) -> dict[str, Any]:
    """A response with normalised items. The status of the last one follows from the response's own."""
    items = [normalised(item) for item in response["output"]]
    if response["status"] == "incomplete" and items:
        items[-1].pop("status", None)
    return {**response, "output": items}


@st.composite
def responses(draw: Any) -> dict[str, Any]:
    """Responses that a chat completion can hold."""
    output = draw(turns())
    for item in output:
        if item["type"] == "message":
            item.pop("name", None)
        if item["type"] == "message" and isinstance(item["content"], list):
            *parts, last = item["content"]
            item["content"] = [*parts[:1], last] if last["type"] == "refusal" else "two texts would be joined"
        if item["type"] == "message" and isinstance(item["content"], str) and item["content"]:
            part = {"type": "output_text", "text": item["content"], "annotations": []}
            part |= draw(st.fixed_dictionaries({}, optional={"logprobs": st.just(LOGPROBS)}))
            part |= draw(st.fixed_dictionaries({}, optional={"annotations": st.just([CITATION])}))
            item["content"] = [part]
    cut = draw(st.sampled_from([None, "max_output_tokens", "content_filter"]))
    fields = draw(st.fixed_dictionaries({}, optional={"service_tier": st.just("flex"), "provider": words}))
    return Response.of(
        *output,
        model="m",
        id="chatcmpl-1",
        created_at=5,
        status="incomplete" if cut else "completed",
        incomplete_details={"reason": cut} if cut else None,
        error=None,
        usage=draw(st.none() | st.just(USAGE)),
        **fields,
    ).data


@settings(deadline=None)
@given(st.sampled_from(STYLES), responses())
def test_a_round_trip_keeps_a_response(style, response):
    lost: list[str] = []
    answer = answer_to_chat(response, style=style, lost=lost)
    back = from_chat(answer, style=style, lost=lost)
    assert (comparable(back), lost) == (comparable(response), [])
    if style.reasoning != "reasoning_details":  # it holds the ids of items
        assert answer_to_chat(back, style=style, lost=lost) == answer
        assert lost == []


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        ({"output": [message("a"), {"type": "web_search_call"}]}, "output[1]: a chat completion has no place"),
        ({"output": [message("a"), {**message("b"), "role": "user"}]}, "output[1]: a chat completion has no place"),
        ({"output": [{**message(""), "content": [TEXT, TEXT]}]}, "output[0].content: a chat completion holds one text"),
        ({"output": [message("a"), reasoning("b")]}, "output[1]: chat puts reasoning before"),
        ({"output": [{**reasoning("b"), "encrypted_content": "x"}]}, "output[0].encrypted_content: a chat completion"),
        (
            {"output": [{**message("a"), "content": [{"type": "output_text", "text": "a", "annotations": [{}]}]}]},
            "output[0].content[0].annotations[0]: a chat completion cites URLs only",
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "steered"}},
            "incomplete_details.reason: a chat completion has no such reason",
        ),
    ],
)
def test_fields_that_a_completion_cannot_hold_are_listed_as_lost(change, listed):
    lost: list[str] = []
    response = {**Response.of(message("a")).data, **change}
    back = from_chat(answer_to_chat(response, lost=lost))
    assert len(lost) == 1
    assert lost[0].startswith(listed)
    assert comparable(back)["output"] != comparable(response)["output"] or back["incomplete_details"] != response.get(
        "incomplete_details"
    )


def test_a_converted_answer_has_all_required_fields():
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.1,
    }
    data = from_chat(completion({"content": "a", "reasoning": "Hm."}, "length", usage=usage, system_fingerprint="fp"))
    assert data == {
        "id": "chatcmpl-1",
        "object": "response",
        "created_at": 5,
        "model": "m",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "error": None,
        "system_fingerprint": "fp",
        "output": [
            {"id": "rs_1_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "id": "msg_1_1",
                "type": "message",
                "role": "assistant",
                "status": "incomplete",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**USAGE, "cost": 0.1},
    }


def test_calls_without_id_or_with_arguments_as_an_object_are_completed():
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "", "function": {"name": "f", "arguments": {"a": 1}}},
        {"index": 2, "type": "function", "function": {"name": "f", "arguments": None}},
    ]
    output = from_chat(completion({"content": "", "tool_calls": calls}, "tool_calls"))["output"]
    assert [(item["call_id"], item["arguments"]) for item in output] == [
        ("c1", '{"a":1}'),
        ("call_1_1", '{"a":1}'),
        ("call_1_2", "{}"),
    ]


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("STOP", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("abort", "incomplete", "abort"),
    ],
)
def test_a_finish_reason_becomes_a_status(finish, status, reason):
    data = from_chat(completion({"content": "a"}, finish))
    assert (data["status"], Response(data).incomplete_reason) == (status, reason)


def test_an_error_inside_an_answer_is_a_bad_response():
    for data in (completion({"content": "a"}, "error"), {"error": {"message": "overloaded"}}):
        with pytest.raises(Failure, match="the provider failed"):
            from_chat(data)
    with pytest.raises(Failure, match="completed or incomplete"):
        answer_to_chat({"status": "failed", "output": []})


def test_a_refusal_becomes_a_part_of_the_message():
    data = from_chat(completion({"content": None, "refusal": "No."}))
    assert data["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert answer_to_chat(data)["choices"][0]["message"] == {"role": "assistant", "content": None, "refusal": "No."}


def test_logprobs_are_put_on_the_only_text_or_listed_as_lost():
    lost: list[str] = []
    answer = completion({"content": "a"})
    answer["choices"][0]["logprobs"] = {"content": LOGPROBS, "refusal": None}
    assert from_chat(answer, lost=lost)["output"][0]["content"][0]["logprobs"] is LOGPROBS
    answer["choices"][0]["message"] = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]}
    assert lost == []
    from_chat(answer, lost=lost)
    assert lost == ["choices[0].logprobs.content: there is not one text that they could belong to"]


def test_the_tokens_of_a_model_call_are_put_on_its_last_item():
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]
    output = from_chat(completion({"content": "a", "tool_calls": calls, **TOKENS}))["output"]
    assert "prompt_token_ids" not in output[0]
    assert {key: output[1][key] for key in TOKENS} == TOKENS


def test_an_answer_without_content_becomes_an_empty_text():
    for nothing in ({}, {"content": None}, {"content": ""}, {"content": []}):
        assert Response.checked(from_chat(completion(nothing))).output_text == ""


PROVIDERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "vllm": (
        completion(
            {"content": "a", "refusal": None, "annotations": None, "audio": None, "function_call": None}
            | {"tool_calls": [], "reasoning": "Hm.", "reasoning_content": "Hm."},
            prompt_logprobs=None,
            prompt_token_ids=None,
            kv_transfer_params=None,
        ),
        [],
    ),
    "llama.cpp": (completion({"content": "a", "reasoning_content": "Hm."}, timings={"prompt_n": 1}), []),
    "openrouter": (
        completion(
            {
                "content": "a",
                "reasoning": "Hm.",
                "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "format": "unknown", "index": 0}],
                "images": [{"type": "image_url", "image_url": {"url": "https://x"}}],
            },
            provider="P",
        ),
        ["choices[0].message.images: Responses has no place for it"],
    ),
    "sglang": (
        completion({"content": "a", "reasoning_content": "Hm."}, metadata={"weight_version": "default"}),
        [],
    ),
    "gemini": (
        completion(
            {
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "f", "arguments": "{}"},
                        "extra_content": {"google": {"thought_signature": "s"}},
                    }
                ],
            },
            "tool_calls",
        ),
        [],
    ),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_fields_that_providers_add_are_kept_or_listed_as_lost(provider):
    answer, listed = PROVIDERS[provider]
    lost: list[str] = []
    data = from_chat(answer, lost=lost)
    assert lost == listed
    assert Response.checked(data).reasoning == "Hm."
    extras = answer.keys() - {"id", "object", "created", "model", "choices", "usage"}
    assert {key: data[key] for key in extras} == {key: answer[key] for key in extras}
    again = answer_to_chat(data, style=ChatStyle(reasoning="reasoning_details"))
    for key in ("reasoning_details", "tool_calls"):
        if answer["choices"][0]["message"].get(key):
            assert again["choices"][0]["message"][key] == answer["choices"][0]["message"][key]


# --- malformed input

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"a": 1}}
DETAILS = [{"type": "reasoning.text", "text": "Hm.", "index": 0}]
FULL = completion(
    {
        "content": [{"type": "text", "text": "<think>a</think>b"}],
        "refusal": "r",
        "reasoning_content": "Hm.",
        "tool_calls": [CALL],
        "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}],
        **TOKENS,
    },
    usage={"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
)
DETAILED = completion({"content": "<think>a</think>b", "reasoning_details": DETAILS})
TAGGED = completion({"content": [{"type": "text", "text": "<think>a</think>b"}], "annotations": [{"type": "x"}]})
for full in (FULL, DETAILED, TAGGED):
    full["choices"][0]["logprobs"] = {"content": LOGPROBS, "refusal": None}


@given(st.sampled_from(STYLES), st.sampled_from([FULL, DETAILED, TAGGED]).flatmap(broken))
def test_a_malformed_answer_is_a_response_or_a_bad_response(style, answer):
    with may_fail_as("bad_response"):
        response = Response.checked(from_chat(answer, style=style, lost=[]))
        assert isinstance(response.output_text + response.reasoning, str)
        answer_to_chat(response.data, style=style)


@given(st.sampled_from(STYLES), st.sampled_from([FULL, DETAILED, TAGGED]), st.data())
def test_a_malformed_response_is_a_completion_or_a_bad_request(style, answer, data):
    broken_response = data.draw(broken(from_chat(answer)))
    try:
        response = Response.checked(broken_response)
    except Failure:
        return
    with may_fail_as("bad_request"):
        answer_to_chat(response.data, style=style, lost=[])


@pytest.mark.parametrize("place", ["content", "reasoning_content", "refusal", "id", "finish_reason", "arguments"])
def test_a_value_of_ten_megabytes_is_read_or_a_bad_response(place):
    huge = "\0x" * 5_000_000
    answer = orjson.loads(orjson.dumps(FULL))
    choice = answer["choices"][0]
    holder = {"id": answer, "finish_reason": choice, "arguments": choice["message"]["tool_calls"][0]["function"]}
    holder.get(place, choice["message"])[place] = huge
    with may_fail_as("bad_response"):
        from_chat(answer)


def test_arguments_nested_too_deeply_are_a_bad_response():
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(Failure):
        from_chat(completion({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": deep}}]}))


# --- the official SDK

#: Fields that only the newest releases of the SDK require.
NEWEST = {("usage", "input_tokens_details", "cache_write_tokens")}


@settings(deadline=None)
@given(st.sampled_from(STYLES), responses())
def test_the_openai_sdk_parses_our_answers(style, response):
    chat = pytest.importorskip("openai.types.chat", reason="needs the openai SDK: pip install openai")
    from openai.types.responses import Response as SdkResponse
    from pydantic import ValidationError

    answer = answer_to_chat(response, style=style)
    read = chat.ChatCompletion.model_validate(answer)
    assert read.choices[0].finish_reason == answer["choices"][0]["finish_reason"]
    data = from_chat(answer, style=style)
    try:
        assert SdkResponse.model_validate(data).output_text == Response(data).output_text
    except ValidationError as error:
        if {tuple(problem["loc"]) for problem in error.errors()} - NEWEST:
            raise


def test_function_calls_survive_the_round_trip():
    response = Response.of(function_call("f", {"a": 1}, call_id="c"))
    (call,) = Response(from_chat(answer_to_chat(response.data))).function_calls
    assert call == response.function_calls[0]
