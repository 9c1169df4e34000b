"""Converts NeMo Gym's objects between the Responses API and Chat Completions, with `ludus.dialects`.

Reasoning travels in `<think>` tags. Ids of new items come from `uuid4` of this module, so that tests can replace it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ludus.dialects.chat import ChatStyle, from_messages, request_from_chat, to_chat
from ludus.dialects.chat_turn import turn_from_chat
from ludus.dialects.conversion import Conversion
from ludus.errors import Failure
from nemo_gym._responses import field_of, is_from_model
from nemo_gym.openai_utils import (
    REQUIRED_TOKEN_METADATA_FIELDS,
    TOKEN_METADATA_FIELDS,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChoice,
    NeMoGymCompletionUsage,
    NeMoGymIncompleteDetails,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseInput,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputItem,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)

__all__ = [
    "ResponsesConverter",
    "ResponsesConverterState",
    "VLLMConverter",
    "VLLMConverterResponsesToChatCompletionsState",
    "split_responses_input_output_items",
]

_TAGS = ChatStyle(reasoning="think")
_NO_TAGS = ChatStyle()

_CHAT_ITEMS = ("message", "function_call", "function_call_output", "reasoning")
#: Request fields that chat cannot express, with the values that say nothing.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "background": (None, False),
    "context_management": (None, []),
    "conversation": (None,),
    "include": (None, [], ["message.output_text.logprobs"]),
    "max_tool_calls": (None,),
    "previous_response_id": (None,),
    "prompt": (None,),
    "truncation": (None, "disabled"),
}
#: Request fields that a response repeats.
_REPEATED = (
    "background instructions max_output_tokens max_tool_calls metadata parallel_tool_calls previous_response_id prompt "
    "prompt_cache_key reasoning safety_identifier service_tier temperature text tool_choice tools top_logprobs top_p "
    "truncation user"
).split()
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}

_OUTPUT: TypeAdapter[list[Any]] = TypeAdapter(list[NeMoGymResponseOutputItem])
_INPUT: TypeAdapter[list[Any]] = TypeAdapter(NeMoGymResponseInput)


class ResponsesConverter(BaseModel):
    """A converter. Without `return_token_id_information`, token fields are left out.

    With `uses_reasoning_parser`, `<think>` tags in an answer become a reasoning item.
    """

    return_token_id_information: bool
    uses_reasoning_parser: bool = True

    def responses_to_chat_completion_create_params(
        self, responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymChatCompletionCreateParamsNonStreaming:
        """The chat request. A field that chat cannot express is a `ValueError`, an item a `NotImplementedError`."""
        fields = responses_create_params.model_dump(exclude_none=True)
        for name, silent in _REFUSED.items():
            if fields.get(name) not in silent:
                raise ValueError(f"Chat Completions has no `{name}`: leave it out, or use an endpoint with /responses")
        if not fields["tools"]:
            if fields.pop("tool_choice", None) == "required":
                raise ValueError('tool_choice is "required", but `tools` is empty: add tools, or choose "auto"')
            fields.pop("parallel_tool_calls", None)
        content = fields.pop("input")
        items = [] if isinstance(content, str) else content
        items = [_convertible(item, f"input[{index}]") for index, item in enumerate(items)]
        _check_tools(fields["tools"])
        try:
            body = to_chat(items, fields, style=_TAGS)
        except Failure as error:
            raise ValueError(error.cause) from error
        if isinstance(content, str):
            body["messages"].append({"role": "user", "content": [{"type": "text", "text": content}]})
        body["messages"] = _with_one_system_message(body["messages"])
        for tool in body.get("tools", ()):
            tool["function"].pop("strict", None)
        if not self.return_token_id_information:
            body["messages"] = [_without_tokens(message) for message in body["messages"]]
        return NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body)

    def chat_completion_to_response(
        self,
        responses_create_params: NeMoGymResponseCreateParamsNonStreaming,
        chat_completion: NeMoGymChatCompletion,
    ) -> NeMoGymResponse:
        """The response of the first choice, with the settings of the request."""
        choice = chat_completion.choices[0]
        reason = _INCOMPLETE.get(str(choice.finish_reason))
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=chat_completion.created,
            model=chat_completion.model,
            object="response",
            output=self.postprocess_chat_response(choice),
            status="incomplete" if reason else "completed",
            incomplete_details=NeMoGymIncompleteDetails(reason=reason) if reason else None,
            usage=_usage(chat_completion.usage),
            **{name: getattr(responses_create_params, name) for name in _REPEATED},
        )

    def postprocess_chat_response(self, choice: NeMoGymChoice) -> list[Any]:
        """The items of a choice."""
        return self.postprocess_assistant_message_dict(choice.message.model_dump(exclude_none=True))

    def postprocess_assistant_message_dict(self, message_dict: dict[str, Any]) -> list[Any]:
        """The items of an assistant's message: reasoning, text, calls. Token fields are on the last one."""
        has_tokens = self.return_token_id_information and message_dict.keys() >= REQUIRED_TOKEN_METADATA_FIELDS
        message = message_dict if has_tokens else _without_tokens(message_dict)
        style = _TAGS if self.uses_reasoning_parser else _NO_TAGS
        conversion = Conversion("bad_response", "Responses", None)
        try:
            items = turn_from_chat(message, "message", style, conversion, f"call_{uuid4().hex}")
        except Failure as error:
            raise ValueError(error.cause) from error
        return _OUTPUT.validate_python([_with_id(item) for item in items])

    def chat_completions_messages_to_responses_items(self, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The items of a whole conversation."""
        items: list[Any] = []
        for message in messages:
            if message.get("role") == "assistant":
                items += self.postprocess_assistant_message_dict(dict(message))
                continue
            content = message.get("content")
            parts = [_without_chat_video(part) for part in content] if isinstance(content, list) else content
            try:
                items += _INPUT.validate_python(from_messages([{**message, "content": parts}]))
            except Failure as error:
                raise ValueError(error.cause) from error
        return items

    def chat_completion_to_responses_create_params(
        self, chat_completion_create_params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymResponseCreateParamsNonStreaming:
        """The request of the Responses API. A field that it cannot express is a `ValueError`."""
        fields = chat_completion_create_params.model_dump(exclude_none=True)
        messages = fields["messages"]
        lost: list[str] = []
        try:
            params = request_from_chat({**fields, "messages": []}, lost=lost)
        except Failure as error:
            raise ValueError(error.cause) from error
        unknown = params.keys() - NeMoGymResponseCreateParamsNonStreaming.model_fields.keys()
        if lost or unknown:
            reasons = "; ".join(lost + [f"{name}: Responses has no place for it" for name in sorted(unknown)])
            raise ValueError(f"the Responses API cannot express the request: {reasons}")
        params["input"] = self.chat_completions_messages_to_responses_items(messages)
        return NeMoGymResponseCreateParamsNonStreaming.model_validate(params)


class ResponsesConverterState(BaseModel):
    """The chat messages of a conversion so far, for converters of authors. Other fields are kept."""

    model_config = ConfigDict(extra="allow")

    return_token_id_information: bool = False
    messages: list[dict[str, Any]] = Field(default_factory=list)


#: The older names.
VLLMConverter = ResponsesConverter
VLLMConverterResponsesToChatCompletionsState = ResponsesConverterState


def split_responses_input_output_items(items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The items before the first one of the model, and those from it on."""
    for index, item in enumerate(items):
        if is_from_model(item):
            return list(items[:index]), list(items[index:])
    return list(items), []


def _check_tools(tools: list[dict[str, Any]]) -> None:
    for index, tool in enumerate(tools):
        if tool.get("type", "function") != "function":
            raise NotImplementedError(f"tools[{index}]: Chat Completions has no tool of type {tool['type']!s:.60}")


def _convertible(item: dict[str, Any], path: str) -> dict[str, Any]:
    """An item with parts that the dialects know, or an error if chat has no counterpart."""
    if item["type"] not in _CHAT_ITEMS:
        raise NotImplementedError(f"{path}: Chat Completions has no item of type {item['type']}")
    name = "output" if item["type"] == "function_call_output" else "content"
    if item["type"] == "reasoning" or not isinstance(item.get(name), list):
        return item
    return {**item, name: [_convertible_part(part, f"{path}.{name}[{i}]") for i, part in enumerate(item[name])]}


def _convertible_part(part: dict[str, Any], path: str) -> dict[str, Any]:
    if part["type"] == "input_video":
        source = part.get("video_url", part.get("video"))
        return {"type": "video_url", "video_url": {"url": source} if isinstance(source, str) else source}
    if part["type"] == "input_image" and not part.get("image_url"):
        raise NotImplementedError(f"{path}: Chat Completions takes an image by `image_url` only")
    if part["type"] == "input_file" and not (part.get("file_data") or part.get("file_id")):
        raise NotImplementedError(f"{path}: Chat Completions takes a file by `file_data` or `file_id` only")
    return part


def _without_chat_video(part: Any) -> Any:
    is_video = isinstance(part, dict) and part.get("type") == "video_url"
    return {"type": "input_video", "video_url": part.get("video_url")} if is_video else part


def _with_one_system_message(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with all leading system messages joined."""
    count = next((index for index, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if count < 2:
        return messages
    contents = [message["content"] for message in messages[:count]]
    joined: Any
    if all(isinstance(content, str) for content in contents):
        joined = "\n\n".join(contents)
    else:
        parts = [[{"type": "text", "text": content}] if isinstance(content, str) else content for content in contents]
        joined = [part for content in parts for part in content]
    return [{"role": "system", "content": joined}, *messages[count:]]


def _without_tokens(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in TOKEN_METADATA_FIELDS}


def _with_id(item: dict[str, Any]) -> dict[str, Any]:
    """An item of an answer as a response holds it."""
    if item["type"] == "reasoning":
        return {**item, "id": f"rs_{uuid4().hex}"}
    if item["type"] == "function_call":
        return {**item, "id": item["call_id"], "status": "completed"}
    content = item["content"] or [{"type": "output_text", "text": ""}]
    parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    parts = [{"annotations": [], **part} if part.get("type") == "output_text" else part for part in parts]
    return {**item, "id": f"msg_{uuid4().hex}", "content": parts, "status": "completed"}


def _usage_detail(details: Any, name: str) -> int | None:
    """A count of a usage's details; `None` if it is unknown."""
    value = field_of(details, name)
    return value if isinstance(value, int) else None


def _usage(usage: NeMoGymCompletionUsage | None) -> NeMoGymResponseUsage | None:
    if usage is None:
        return None
    cached = _usage_detail(usage.prompt_tokens_details, "cached_tokens")
    reasoning = _usage_detail(usage.completion_tokens_details, "reasoning_tokens")
    return NeMoGymResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=cached),
        output_tokens=usage.completion_tokens,
        output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=reasoning),
        total_tokens=usage.total_tokens,
    )
