"""The converter between the Responses API and Chat Completions keeps a conversation, its settings and its tokens."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from nemo_gym import openai_utils as api
from nemo_gym.responses_converter import (
    ResponsesConverter,
    VLLMConverter,
    _usage_detail,
    split_responses_input_output_items,
)

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CALL_ITEM = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True, "description": "adds"}

CONVERTER = ResponsesConverter(return_token_id_information=True)


def to_chat(converter: ResponsesConverter = CONVERTER, **fields: Any) -> dict[str, Any]:
    params = api.NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": "hi", **fields})
    return converter.responses_to_chat_completion_create_params(params).model_dump(exclude_unset=True)


def items_of(message: dict[str, Any], converter: ResponsesConverter = CONVERTER) -> list[dict[str, Any]]:
    items = converter.postprocess_assistant_message_dict({"role": "assistant", **message})
    return [item.model_dump(exclude_none=True) for item in items]


def assistant(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "m", "content": [part], **fields}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


def test_a_text_becomes_one_user_message_with_one_part():
    assert to_chat() == {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}


def test_items_become_messages_with_tagged_reasoning_and_joined_calls():
    output = {"type": "function_call_output", "call_id": "c1", "output": "4"}
    items = [{"role": "user", "content": "2+2"}, thought("hm"), assistant("I add"), CALL_ITEM, output, assistant("4")]
    assert to_chat(input=items)["messages"] == [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "<think>hm</think>I add", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "4"},
    ]


def test_instructions_and_leading_system_messages_become_one():
    leading = [{"role": "system", "content": "b"}, {"role": "developer", "content": "c"}]
    items = [*leading, {"role": "user", "content": "d"}]
    messages = to_chat(input=items, instructions="a")["messages"]
    assert messages == [{"role": "system", "content": "a\n\nb\n\nc"}, {"role": "user", "content": "d"}]
    part = {"type": "input_text", "text": "x"}
    messages = to_chat(input=[{"role": "system", "content": [part, part]}], instructions="a")["messages"]
    assert [part["text"] for part in messages[0]["content"]] == ["a", "x", "x"]


def test_settings_have_their_names_in_chat():
    body = to_chat(
        max_output_tokens=5, reasoning={"effort": "low"}, tools=[TOOL], temperature=0.5, tool_choice="required"
    )
    assert (body["max_tokens"], body["reasoning_effort"], body["temperature"]) == (5, "low", 0.5)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", True)
    function = {"name": "add", "parameters": {"type": "object"}, "description": "adds"}
    assert body["tools"] == [{"type": "function", "function": function}]


def test_a_required_call_without_tools_is_refused():
    with pytest.raises(ValueError, match="`tools` is empty"):
        to_chat(tool_choice="required")


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "r"},
        {"background": True},
        {"conversation": "c"},
        {"prompt": {"id": "p"}},
        {"truncation": "auto"},
        {"max_tool_calls": 2},
        {"include": ["reasoning.encrypted_content"]},
    ],
)
def test_a_setting_that_chat_cannot_express_is_refused(fields: dict[str, Any]):
    with pytest.raises(ValueError, match=next(iter(fields))):
        to_chat(**fields)


def test_an_item_or_a_tool_without_a_counterpart_is_not_implemented():
    with pytest.raises(NotImplementedError, match=r"input\[0\].*web_search_call"):
        to_chat(input=[{"type": "web_search_call", "id": "w"}])
    with pytest.raises(NotImplementedError, match=r"tools\[0\].*web_search"):
        to_chat(tools=[{"type": "web_search"}])


@pytest.mark.parametrize(
    ("part", "chat_part"),
    [
        ({"type": "input_image", "image_url": "u"}, {"type": "image_url", "image_url": {"url": "u"}}),
        ({"type": "input_video", "video": "u"}, {"type": "video_url", "video_url": {"url": "u"}}),
        ({"type": "input_video", "video_url": {"url": "u"}}, {"type": "video_url", "video_url": {"url": "u"}}),
        ({"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},) * 2,
    ],
)
def test_media_have_their_form_in_chat_and_come_back(part: dict[str, Any], chat_part: dict[str, Any]):
    (message,) = to_chat(input=[{"role": "user", "content": [part]}])["messages"]
    assert message["content"] == [chat_part]
    (item,) = CONVERTER.chat_completions_messages_to_responses_items([message])
    assert to_chat(input=[item])["messages"] == [message]


@pytest.mark.parametrize("part", [{"type": "input_image", "file_id": "f"}, {"type": "input_file", "file_url": "u"}])
def test_media_that_chat_cannot_take_are_not_dropped_silently(part: dict[str, Any]):
    with pytest.raises(NotImplementedError, match=r"input\[0\].content\[0\]"):
        to_chat(input=[{"role": "user", "content": [part]}])


def test_token_fields_travel_only_if_asked_for():
    items = [assistant("4", **TOKENS)]
    silent = ResponsesConverter(return_token_id_information=False)
    assert to_chat(input=items)["messages"] == [{"role": "assistant", "content": "4", **TOKENS}]
    assert to_chat(silent, input=items)["messages"] == [{"role": "assistant", "content": "4"}]
    message = {"content": "4", "tool_calls": [CALL], **TOKENS}
    text, call = items_of(message)
    assert "prompt_token_ids" not in text
    assert {name: call[name] for name in TOKENS} == TOKENS
    assert all("prompt_token_ids" not in item for item in items_of(message, silent))
    assert all("prompt_token_ids" not in item for item in items_of({"content": "4", "prompt_token_ids": [1]}))


def test_the_last_item_with_tokens_has_the_training_form():
    (item,) = CONVERTER.postprocess_assistant_message_dict({"role": "assistant", "content": "4", **TOKENS})
    assert type(item) is api.NeMoGymResponseOutputMessageForTraining


def test_an_answer_becomes_reasoning_text_and_calls_with_ids_from_uuid4():
    with patch("nemo_gym.responses_converter.uuid4", return_value=MagicMock(hex="123")):
        items = items_of({"content": "<think>hm</think>4", "tool_calls": [CALL]})
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert [item["id"] for item in items] == ["rs_123", "msg_123", "c1"]
    assert items[0]["summary"] == [{"text": "hm", "type": "summary_text"}]
    assert items[1]["content"] == [{"annotations": [], "text": "4", "type": "output_text"}]


@pytest.mark.parametrize("message", [{"content": ""}, {"content": None}, {}])
def test_an_empty_answer_is_an_empty_message(message: dict[str, Any]):
    (item,) = items_of(message)
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


def test_without_the_parser_tags_stay_text():
    off = ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=False)
    (item,) = items_of({"content": "<think>hm</think>4"}, off)
    assert item["content"][0]["text"] == "<think>hm</think>4"


def completion(finish_reason: str, usage: dict[str, Any] | None = None) -> api.NeMoGymChatCompletion:
    choice = {"finish_reason": finish_reason, "index": 0, "message": {"role": "assistant", "content": "4"}}
    body = {"id": "x", "choices": [choice], "created": 7, "model": "m", "object": "chat.completion", "usage": usage}
    return api.NeMoGymChatCompletion.model_validate(body)


@pytest.mark.parametrize(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_a_completion_becomes_a_response_with_the_settings_of_the_request(
    finish_reason: str, status: str, reason: str | None
):
    params = api.NeMoGymResponseCreateParamsNonStreaming(input="hi", temperature=0.5, tools=[TOOL], metadata={"a": "b"})
    response = CONVERTER.chat_completion_to_response(params, completion(finish_reason))
    assert response.id.startswith("resp_")
    assert (response.model, response.output_text, response.status, response.usage) == ("m", "4", status, None)
    assert (response.temperature, response.metadata) == (0.5, {"a": "b"})
    assert [tool.model_dump() for tool in response.tools] == [TOOL]
    assert (response.incomplete_details.reason if response.incomplete_details else None) == reason


def test_details_of_usage_stay_unknown_if_the_endpoint_does_not_say():
    params = api.NeMoGymResponseCreateParamsNonStreaming(input="hi")
    counts = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    usage = CONVERTER.chat_completion_to_response(params, completion("stop", counts)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 2, 5)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (None, None)
    details = {"prompt_tokens_details": {"cached_tokens": 1}}
    usage = CONVERTER.chat_completion_to_response(params, completion("stop", {**counts, **details})).usage
    assert usage is not None
    assert usage.input_tokens_details.cached_tokens == 1
    assert _usage_detail({"cached_tokens": 2}, "cached_tokens") == 2


def test_a_chat_request_comes_back_as_the_same_request():
    body = to_chat(
        input=[{"role": "user", "content": "2+2"}, thought("hm"), assistant("4")],
        tools=[TOOL],
        max_output_tokens=5,
        reasoning={"effort": "low"},
    )
    chat = api.NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body)
    params = CONVERTER.chat_completion_to_responses_create_params(chat)
    assert isinstance(params.input, list)
    assert [item.type for item in params.input] == ["message", "reasoning", "message"]
    assert (params.max_output_tokens, params.reasoning) == (5, {"effort": "low"})
    assert CONVERTER.responses_to_chat_completion_create_params(params).model_dump(exclude_unset=True) == body


def test_a_chat_setting_that_responses_cannot_express_is_refused():
    chat = api.NeMoGymChatCompletionCreateParamsNonStreaming(messages=[{"role": "user", "content": "x"}], seed=3)
    with pytest.raises(ValueError, match="seed"):
        CONVERTER.chat_completion_to_responses_create_params(chat)


def test_a_conversation_of_chat_becomes_items():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    items = CONVERTER.chat_completions_messages_to_responses_items(messages)
    assert [item.type for item in items] == ["message", "message", "function_call", "function_call_output"]


@pytest.mark.parametrize("first", [assistant("4"), thought("hm"), CALL_ITEM, {"role": "assistant", "content": "4"}])
def test_a_conversation_is_cut_at_the_first_item_of_the_model(first: dict[str, Any]):
    asked, later = {"role": "user", "content": "x"}, {"role": "user", "content": "y"}
    assert split_responses_input_output_items([asked, first, later]) == ([asked], [first, later])
    objects = api.NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": [asked, first]}).input
    assert split_responses_input_output_items(list(objects)) == ([objects[0]], [objects[1]])
    assert split_responses_input_output_items([asked]) == ([asked], [])


def test_the_older_name():
    assert VLLMConverter is ResponsesConverter
