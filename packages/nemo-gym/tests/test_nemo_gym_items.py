"""Items, requests and responses have the classes, fields and rules that NeMo Gym's servers and agents rely on."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nemo_gym import openai_utils as api
from pydantic import BaseModel, TypeAdapter, ValidationError

INPUT_ITEM: TypeAdapter[Any] = TypeAdapter(api.NeMoGymResponseInputItem)
OUTPUT_ITEM: TypeAdapter[Any] = TypeAdapter(api.NeMoGymResponseOutputItem)
INPUT: TypeAdapter[Any] = TypeAdapter(api.NeMoGymResponseInput)

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
TEXT = {"type": "output_text", "text": "4", "annotations": []}
HOSTED = (
    "mcp_call mcp_list_tools mcp_approval_request mcp_approval_response file_search_call web_search_call computer_call "
    "computer_call_output image_generation_call code_interpreter_call local_shell_call local_shell_call_output "
    "custom_tool_call custom_tool_call_output apply_patch_call apply_patch_call_output shell_call shell_call_output "
    "compaction tool_search_call tool_search_output additional_tools"
).split()


def response(**fields: Any) -> api.NeMoGymResponse:
    settings: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return api.NeMoGymResponse(**{"id": "r", "created_at": 1, "model": "m", "object": "response", **settings, **fields})


def usage(tokens: int, cached: int | None = 0, reasoning: int | None = 0) -> api.NeMoGymResponseUsage:
    return api.NeMoGymResponseUsage(
        input_tokens=tokens,
        output_tokens=tokens,
        total_tokens=2 * tokens,
        input_tokens_details=api.NeMoGymResponseInputTokensDetails(cached_tokens=cached),
        output_tokens_details=api.NeMoGymResponseOutputTokensDetails(reasoning_tokens=reasoning),
    )


@pytest.mark.parametrize(
    ("item", "item_class"),
    [
        ({"role": "user", "content": "x"}, api.NeMoGymEasyInputMessage),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, api.NeMoGymEasyInputMessage),
        ({"role": "user", "content": [], "status": "completed"}, api.NeMoGymMessage),
        ({"role": "user", "content": [], "status": "unheard"}, api.NeMoGymEasyInputMessage),
        ({"role": "developer", "content": "x", "status": "completed"}, api.NeMoGymEasyInputMessage),
        ({"role": "assistant", "content": "x"}, api.NeMoGymEasyInputMessage),
        ({"role": "assistant", "id": "m", "content": [TEXT]}, api.NeMoGymResponseOutputMessage),
        (
            {"role": "assistant", "id": "m", "content": [{"type": "refusal", "refusal": "no"}]},
            api.NeMoGymResponseOutputMessage,
        ),
        ({"role": "assistant", "id": "m", "content": []}, api.NeMoGymResponseOutputMessage),
        ({"role": "assistant", "content": []}, api.NeMoGymEasyInputMessage),
        ({"name": "f", "arguments": "{}", "call_id": "c"}, api.NeMoGymResponseFunctionToolCall),
        ({"name": "f", "arguments": "{}", "id": "c"}, api.NeMoGymHostedToolItem),
        ({"call_id": "c", "output": "4"}, api.NeMoGymFunctionCallOutput),
        ({"id": "r", "summary": []}, api.NeMoGymResponseReasoningItem),
    ],
)
def test_an_input_item_without_type_is_chosen_by_its_fields(item: dict[str, Any], item_class: type):
    assert type(INPUT_ITEM.validate_python(item)) is item_class


def test_an_output_item_needs_a_type():
    with pytest.raises(ValidationError, match="`type` is missing or unknown"):
        OUTPUT_ITEM.validate_python({"role": "assistant", "id": "m", "content": [TEXT]})


@pytest.mark.parametrize("item", [{}, {"type": "dance"}, {"type": []}, {"type": None, "x": 1}, "text", 3, None, []])
def test_what_is_no_item_is_refused_with_one_error(item: object):
    for adapter in (INPUT_ITEM, OUTPUT_ITEM):
        with pytest.raises(ValidationError, match="not an item") as caught:
            adapter.validate_python(item)
        assert caught.value.error_count() == 1


def test_an_error_names_the_class_that_was_chosen():
    with pytest.raises(ValidationError) as caught:
        response(output=[{"type": "message", "role": "assistant", "content": [TEXT]}])
    assert caught.value.errors()[0]["loc"] == ("output", 0, "NeMoGymResponseOutputMessage", "id")


def test_an_output_of_a_function_with_id_and_status_is_the_response_s_own_class():
    output = {"type": "function_call_output", "call_id": "c", "output": "4"}
    assert type(OUTPUT_ITEM.validate_python(output)) is api.NeMoGymFunctionCallOutput
    complete = {**output, "id": "o", "status": "completed"}
    assert type(OUTPUT_ITEM.validate_python(complete)) is api.NeMoGymResponseFunctionCallOutput
    assert type(INPUT_ITEM.validate_python(complete)) is api.NeMoGymFunctionCallOutput


@pytest.mark.parametrize("item_type", HOSTED)
def test_items_of_hosted_tools_come_back_unchanged(item_type: str):
    item = {"type": item_type, "id": "h", "status": "in_progress", "anything": {"nested": [1, None]}}
    for adapter in (INPUT_ITEM, OUTPUT_ITEM):
        assert adapter.dump_python(adapter.validate_python(item)) == item


def test_a_compaction_trigger_is_an_input_only():
    assert INPUT_ITEM.validate_python({"type": "compaction_trigger"}).type == "compaction_trigger"
    with pytest.raises(ValidationError):
        OUTPUT_ITEM.validate_python({"type": "compaction_trigger"})


def test_unknown_fields_of_items_are_dropped():
    reasoning = {"type": "reasoning", "id": "r", "summary": [], "status": "completed", "x": 1}
    assert INPUT_ITEM.dump_python(INPUT_ITEM.validate_python(reasoning)) == {
        "id": "r",
        "summary": [],
        "type": "reasoning",
        "encrypted_content": None,
        "content": None,
    }


def test_defaults_and_required_fields_of_items():
    message = api.NeMoGymResponseOutputMessage(id="m", content=[api.NeMoGymResponseOutputText(annotations=[], text="")])
    assert (message.role, message.status, message.type, message.phase) == ("assistant", "completed", "message", None)
    call = api.NeMoGymResponseFunctionToolCall(arguments="{}", call_id="c", name="f")
    assert (call.id, call.status, call.namespace, call.type) == (None, None, None, "function_call")
    assert api.NeMoGymMessage(content=[], role="user").status == "completed"
    with pytest.raises(ValidationError, match="annotations"):
        api.NeMoGymResponseOutputText.model_validate({"text": "x"})
    with pytest.raises(ValidationError, match="type"):
        api.NeMoGymSummary.model_validate({"text": "x"})
    with pytest.raises(ValidationError, match="status"):
        api.NeMoGymResponseOutputMessage.model_validate({"id": "m", "content": [], "status": "unheard"})


@pytest.mark.parametrize(
    "video",
    [{}, {"video_url": "u", "video": "v"}, {"video_url": ""}, {"video": {"url": ""}}, {"video": {}}, {"video": 3}],
)
def test_a_video_without_exactly_one_source_is_refused(video: dict[str, Any]):
    with pytest.raises(ValidationError):
        INPUT_ITEM.validate_python({"role": "user", "content": [{"type": "input_video", **video}]})


@pytest.mark.parametrize("video", [{"video_url": "u"}, {"video": "v"}, {"video_url": {"url": "u"}}])
def test_a_video_with_one_source_is_kept(video: dict[str, Any]):
    part = {"type": "input_video", **video}
    assert INPUT_ITEM.validate_python({"role": "user", "content": [part]}).content == [part]


@pytest.mark.parametrize(
    ("item", "item_class"),
    [
        ({"type": "message", "role": "user", "content": "x"}, api.NeMoGymEasyInputMessageForTraining),
        ({"type": "message", "role": "user", "content": [], "status": "completed"}, api.NeMoGymMessageForTraining),
        (
            {"type": "message", "role": "assistant", "id": "m", "content": [TEXT]},
            api.NeMoGymResponseOutputMessageForTraining,
        ),
        (
            {"type": "function_call", "name": "f", "arguments": "", "call_id": "c"},
            api.NeMoGymResponseFunctionToolCallForTraining,
        ),
        ({"type": "reasoning", "id": "r", "summary": []}, api.NeMoGymResponseReasoningItemForTraining),
    ],
)
def test_token_fields_choose_the_training_form(item: dict[str, Any], item_class: type[BaseModel]):
    for adapter in (INPUT_ITEM, OUTPUT_ITEM):
        trained = adapter.validate_python({**item, **TOKENS})
        assert type(trained) is item_class
        assert isinstance(trained, api.TokenIDLogProbMixin)
        assert isinstance(trained, type(adapter.validate_python(item)))
        assert trained.routed_experts is None
        assert adapter.validate_python({**item, **TOKENS, "routed_experts": [[[1]]]}).routed_experts == [[[1]]]
        for field in api.REQUIRED_TOKEN_METADATA_FIELDS:
            partial = {name: ids for name, ids in TOKENS.items() if name != field}
            with pytest.raises(ValidationError, match=f"token fields are incomplete: add {field}"):
                adapter.validate_python({**item, **partial})


def test_the_sets_of_token_fields():
    assert frozenset(TOKENS) == api.REQUIRED_TOKEN_METADATA_FIELDS
    assert {*TOKENS, "routed_experts"} == api.TOKEN_METADATA_FIELDS


class MarkedMessage(api.NeMoGymResponseOutputMessage):
    mark: int


def test_an_item_object_stays_the_same_object_and_a_subclass_keeps_its_fields():
    message = MarkedMessage(id="m", content=[], mark=7)
    answer = response(output=[message])
    assert answer.output[0] is message
    assert answer.model_dump()["output"][0]["mark"] == 7


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_request_has_defaults_and_refuses_unknown_fields():
    request = api.NeMoGymResponseCreateParamsNonStreaming(input="hi")
    fields = request.model_dump()
    assert {name: value for name, value in fields.items() if value is not None} == {
        "input": "hi",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    new = "context_management conversation moderation prompt_cache_key prompt_cache_retention safety_identifier"
    assert {*new.split(), "stream_options"} <= fields.keys()
    for wrong in ({"temperatur": 1}, {"stream": True}, {"metadata": {"a": 1}}, {"tools": "none"}):
        with pytest.raises(ValidationError):
            api.NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": "hi", **wrong})


def test_an_agent_extends_the_input_by_copy_and_by_assignment():
    body = api.NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": [{"role": "user", "content": "2+2"}]})
    answer = response(output=[{"type": "message", "role": "assistant", "id": "m", "content": [TEXT]}])
    assert isinstance(body.input, list)
    longer = body.model_copy(update={"input": body.input + answer.output})
    assert [type(item).__name__ for item in longer.input] == ["NeMoGymEasyInputMessage", "NeMoGymResponseOutputMessage"]
    body.input = longer.input
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dumped = longer.model_dump(exclude_unset=True)
    assert api.NeMoGymResponseCreateParamsNonStreaming.model_validate(dumped).input == longer.input
    mixed = longer.model_copy(update={"input": [*longer.input, {"role": "user", "content": "more"}]})
    assert mixed.model_dump()["input"][2] == {"role": "user", "content": "more"}


def test_items_of_a_response_are_adapted_when_a_request_replays_them():
    tool = {"type": "function", "name": "f", "defer_loading": None}
    items = [
        {"type": "computer_call_output", "call_id": "c", "status": "failed"},
        {"type": "additional_tools", "role": "assistant", "tools": [tool]},
        {"type": "tool_search_output", "tools": [tool]},
    ]
    output = response(output=items).output
    loaded = {**tool, "defer_loading": False}
    for replayed in (items, output):
        body = api.NeMoGymResponseCreateParamsNonStreaming(input=replayed)
        assert body.model_dump()["input"] == [
            {"type": "computer_call_output", "call_id": "c"},
            {"type": "additional_tools", "role": "developer", "tools": [loaded]},
            {"type": "tool_search_output", "tools": [loaded]},
        ]
    assert items[0]["status"] == "failed"
    assert response(output=output).model_dump()["output"] == items


class RunRequest(BaseModel):
    responses_create_params: api.NeMoGymResponseCreateParamsNonStreaming


class VerifyRequest(RunRequest):
    response: api.NeMoGymResponse


class AuthorsRunRequest(RunRequest):
    expected: int


class AuthorsVerifyRequest(AuthorsRunRequest, VerifyRequest):
    pass


def test_authors_inherit_from_several_classes():
    fields = {"responses_create_params": {"input": "hi"}, "expected": 4, "response": response(output=[]).model_dump()}
    request = AuthorsVerifyRequest.model_validate(fields)
    assert (request.expected, request.response.output_text) == (4, "")


# --- responses ------------------------------------------------------------------------------------------------------


def test_output_text_joins_the_texts_of_all_messages():
    refusal = {"type": "refusal", "refusal": "no"}
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hidden"}]},
        {"type": "message", "role": "assistant", "id": "m", "content": [TEXT, refusal, TEXT]},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "message", "role": "user", "content": "not the model"},
        api.NeMoGymResponseOutputMessage(id="n", content=[api.NeMoGymResponseOutputText(annotations=[], text="2")]),
    ]
    assert response(output=items).output_text == "442"
    assert api.NeMoGymResponse.model_construct(output=items).output_text == "442"


@pytest.mark.parametrize(
    "field", ["id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools"]
)
def test_a_response_needs_its_required_fields(field: str):
    body = response(output=[]).model_dump()
    del body[field]
    with pytest.raises(ValidationError, match=field):
        api.NeMoGymResponse.model_validate(body)


def test_a_response_keeps_unknown_fields_and_has_its_reason_as_an_object():
    answer = response(output=[], incomplete_details={"reason": "max_output_tokens"}, odd=[1])
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.model_dump()["odd"] == [1]
    assert json.loads(answer.model_dump_json())["odd"] == [1]
    assert (answer.usage, answer.error, answer.status) == (None, None, None)


def test_the_settings_of_a_response_are_read_by_attributes_and_dumped_as_they_came():
    settings = {
        "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}],
        "tool_choice": {"type": "function", "name": "add"},
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_object"}},
    }
    made = response(output=[], **settings)
    assert (made.tools[0].name, made.tools[0].parameters["type"]) == ("add", "object")
    assert (made.tool_choice.name, made.reasoning.effort) == ("add", "low")
    assert made.text.format.type == "json_object"
    dumped = made.to_dict()
    assert {name: dumped[name] for name in settings} == settings
    assert json.loads(made.to_json()) == dumped
    assert response(output=[], tools=[{"name": "untyped"}]).to_dict()["tools"] == [{"name": "untyped"}]


def test_a_response_made_without_validation_has_objects_in_place_of_mappings():
    double = object()
    message = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "4", "annotations": []}]}
    made = api.NeMoGymResponse.model_construct(output=[message, double, {"type": "unknown"}], usage=None)
    assert isinstance(made.output[0], api.NeMoGymResponseOutputMessage)
    assert made.output[1:] == [double, {"type": "unknown"}]
    answer = api.NeMoGymChatCompletion.model_construct(choices=[{"message": {"role": "assistant", "content": "4"}}])
    assert answer.choices[0].message.content == "4"


def test_citations_and_reasoning_texts_are_read_by_key_and_by_attribute():
    text = api.NeMoGymResponseOutputText(text="x", annotations=[{"type": "url_citation", "url": "u"}])
    assert (text.annotations[0].url, text.annotations[0]["url"]) == ("u", "u")
    assert text.model_dump()["annotations"] == [{"type": "url_citation", "url": "u"}]
    item = api.NeMoGymResponseReasoningItem(id="r", summary=[], content=[{"type": "reasoning_text", "text": "so"}])
    assert copy.deepcopy(item).content[0].text == pickle.loads(pickle.dumps(item)).content[0]["text"] == "so"


def test_log_probabilities_and_fields_of_hosted_tools_are_read_by_key_and_by_attribute():
    logprob = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -1.0}]}
    text = api.NeMoGymResponseOutputText(text="x", annotations=[], logprobs=[logprob])
    assert (text.logprobs[0].logprob, text.logprobs[0].top_logprobs[0].token) == (-0.5, "b")
    assert text.model_dump()["logprobs"] == [logprob]
    search = {"type": "web_search_call", "id": "w", "action": {"type": "search", "sources": [{"url": "u"}]}}
    code = {"type": "code_interpreter_call", "id": "c", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]}
    items = [OUTPUT_ITEM.validate_python(item) for item in (search, code)]
    assert (items[0].action.sources[0].url, items[1].outputs[0].logs) == ("u", "1")
    assert [item.model_dump() for item in copy.deepcopy(items)] == [search, code]
    with pytest.raises(AttributeError, match="query"):
        _ = items[0].action.query


def test_usage_is_summed_and_an_unknown_detail_stays_unknown():
    total = api.NeMoGymResponseUsage.sum_from_list([usage(1, cached=1), usage(2, cached=3, reasoning=None)])
    assert total == usage(3, cached=4, reasoning=None)
    assert api.NeMoGymResponseUsage.sum_from_list([]) == usage(0)
    for details in (api.NeMoGymResponseInputTokensDetails, api.NeMoGymResponseOutputTokensDetails):
        with pytest.raises(ValidationError):
            details.model_validate({})


def test_usage_is_accumulated_without_changing_the_parts():
    first, second = usage(1), usage(2, cached=None)
    assert api.accumulate_response_usage(first, None) is first
    assert api.accumulate_response_usage(None, None) is None
    copy = api.accumulate_response_usage(None, second)
    assert copy == second
    assert copy is not second
    assert copy is not None
    assert copy.input_tokens_details is not second.input_tokens_details
    assert api.accumulate_response_usage(first, second) == usage(3, cached=None)
    assert first == usage(1)


@pytest.mark.parametrize(
    "model",
    [
        api.NeMoGymResponse,
        api.NeMoGymResponseCreateParamsNonStreaming,
        api.NeMoGymChatCompletion,
        api.NeMoGymChatCompletionCreateParamsNonStreaming,
    ],
)
def test_a_web_server_can_describe_every_body_as_a_json_schema(model: type[BaseModel]):
    assert model.model_json_schema(mode="validation")["properties"].keys() == model.model_fields.keys()
    assert model.model_json_schema(mode="serialization")["properties"].keys() == model.model_fields.keys()


# --- conversations --------------------------------------------------------------------------------------------------

_text = st.text(max_size=5)
_status = st.sampled_from(["in_progress", "completed", "incomplete"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _text, lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
_parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("input_text"), "text": _text}),
    st.fixed_dictionaries({"type": st.just("input_image")}, optional={"image_url": _text, "detail": _text}),
    st.fixed_dictionaries({"type": st.just("input_file")}, optional={"file_data": _text, "filename": _text}),
    st.fixed_dictionaries(
        {"type": st.just("input_audio"), "input_audio": st.fixed_dictionaries({"data": _text, "format": _text})}
    ),
    st.fixed_dictionaries({"type": st.just("input_video"), "video_url": st.text(min_size=1, max_size=5)}),
)
_output_parts = st.one_of(
    st.builds(api.NeMoGymResponseOutputText, annotations=st.lists(_json, max_size=1), text=_text),
    st.builds(api.NeMoGymResponseOutputRefusal, refusal=_text),
)
_content = _text | st.lists(_parts, max_size=2)
_roles = st.sampled_from(["user", "system", "developer"])
_tokens = {
    "prompt_token_ids": st.lists(st.integers(), max_size=3),
    "generation_token_ids": st.lists(st.integers(), max_size=3),
    "generation_log_probs": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    "routed_experts": st.none() | _text | st.just([[[1, 2]]]),
}
_maybe = st.none() | _text
_fields: list[tuple[type[BaseModel], type[BaseModel] | None, dict[str, Any]]] = [
    (
        api.NeMoGymEasyInputMessage,
        api.NeMoGymEasyInputMessageForTraining,
        {"content": _content, "role": _roles},
    ),
    (
        api.NeMoGymEasyInputMessage,
        api.NeMoGymEasyInputMessageForTraining,
        {"content": _content, "role": st.just("assistant")},
    ),
    (
        api.NeMoGymMessage,
        api.NeMoGymMessageForTraining,
        {"content": st.lists(_parts, max_size=2), "role": _roles, "status": _status},
    ),
    (
        api.NeMoGymResponseOutputMessage,
        api.NeMoGymResponseOutputMessageForTraining,
        {"id": _text, "content": st.lists(_output_parts, max_size=2), "status": _status, "phase": _maybe},
    ),
    (
        api.NeMoGymResponseFunctionToolCall,
        api.NeMoGymResponseFunctionToolCallForTraining,
        {"arguments": _text, "call_id": _text, "name": _text, "id": _maybe, "status": st.none() | _status},
    ),
    (
        api.NeMoGymResponseReasoningItem,
        api.NeMoGymResponseReasoningItemForTraining,
        {
            "id": _text,
            "summary": st.lists(st.builds(api.NeMoGymSummary, text=_text, type=st.just("summary_text")), max_size=2),
            "encrypted_content": _maybe,
            "content": st.none() | st.lists(_json, max_size=2),
        },
    ),
    (api.NeMoGymFunctionCallOutput, None, {"call_id": _text, "output": _content}),
    (
        api.NeMoGymResponseFunctionCallOutput,
        None,
        {"call_id": _text, "output": _content, "id": _text, "status": _status},
    ),
    (api.NeMoGymHostedToolItem, None, {"type": st.sampled_from(HOSTED), "payload": _json}),
]
_items = st.one_of(
    [st.builds(item_class, **fields) for item_class, _, fields in _fields]
    + [st.builds(training, **fields, **_tokens) for _, training, fields in _fields if training]
)


@given(items=st.lists(_items, max_size=4))
def test_a_conversation_survives_dump_and_validation_unchanged(items: list[BaseModel]):
    answer = response(output=items)
    assert api.NeMoGymResponse.model_validate(answer.model_dump()) == answer
    assert api.NeMoGymResponse.model_validate_json(answer.model_dump_json()).model_dump() == answer.model_dump()


@given(items=st.lists(_items, max_size=4))
def test_an_input_survives_dump_and_validation_unchanged(items: list[BaseModel]):
    dumped = INPUT.dump_python(INPUT.validate_python(items))
    assert INPUT.dump_python(INPUT.validate_python(dumped)) == dumped
    assert dumped == [item.model_dump() for item in items]
