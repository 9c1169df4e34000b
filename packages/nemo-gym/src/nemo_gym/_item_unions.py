"""The unions of all items. A discriminator chooses the class first, so that a validation error names one class.

An object is chosen by its class, a mapping by its `type` and, for a message, by role and content. Complete token
fields choose the training form. Items are serialized as what they are: a subclass of an author keeps its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, Discriminator, SerializeAsAny, Tag

from nemo_gym._items import (
    REQUIRED_TOKEN_METADATA_FIELDS,
    STATUSES,
    NeMoGymEasyInputMessage,
    NeMoGymEasyInputMessageForTraining,
    NeMoGymFunctionCallOutput,
    NeMoGymHostedToolItem,
    NeMoGymMessage,
    NeMoGymMessageForTraining,
    NeMoGymResponseFunctionCallOutput,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseReasoningItem,
    NeMoGymResponseReasoningItemForTraining,
)
from nemo_gym._received import fields_of_model

_HOSTED_TYPES = frozenset(get_args(NeMoGymHostedToolItem.model_fields["type"].annotation))

#: The classes of items with a training form, and that form.
RESPONSES_TO_TRAIN: dict[type[BaseModel], type[BaseModel]] = {
    NeMoGymEasyInputMessage: NeMoGymEasyInputMessageForTraining,
    NeMoGymMessage: NeMoGymMessageForTraining,
    NeMoGymResponseOutputMessage: NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseFunctionToolCall: NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseReasoningItem: NeMoGymResponseReasoningItemForTraining,
}

_AnyItem = (
    Annotated[NeMoGymEasyInputMessage, Tag("NeMoGymEasyInputMessage")]
    | Annotated[NeMoGymEasyInputMessageForTraining, Tag("NeMoGymEasyInputMessageForTraining")]
    | Annotated[NeMoGymMessage, Tag("NeMoGymMessage")]
    | Annotated[NeMoGymMessageForTraining, Tag("NeMoGymMessageForTraining")]
    | Annotated[NeMoGymResponseOutputMessage, Tag("NeMoGymResponseOutputMessage")]
    | Annotated[NeMoGymResponseOutputMessageForTraining, Tag("NeMoGymResponseOutputMessageForTraining")]
    | Annotated[NeMoGymResponseFunctionToolCall, Tag("NeMoGymResponseFunctionToolCall")]
    | Annotated[NeMoGymResponseFunctionToolCallForTraining, Tag("NeMoGymResponseFunctionToolCallForTraining")]
    | Annotated[NeMoGymFunctionCallOutput, Tag("NeMoGymFunctionCallOutput")]
    | Annotated[NeMoGymResponseFunctionCallOutput, Tag("NeMoGymResponseFunctionCallOutput")]
    | Annotated[NeMoGymResponseReasoningItem, Tag("NeMoGymResponseReasoningItem")]
    | Annotated[NeMoGymResponseReasoningItemForTraining, Tag("NeMoGymResponseReasoningItemForTraining")]
    | Annotated[NeMoGymHostedToolItem, Tag("NeMoGymHostedToolItem")]
)
_CLASSES: dict[str, type[BaseModel]] = {get_args(member)[1].tag: get_args(member)[0] for member in get_args(_AnyItem)}


def _message_class(item: Mapping[str, Any]) -> type[BaseModel]:
    content = item.get("content")
    if item.get("role") in ("user", "system", "developer"):
        has_status = isinstance(content, list) and item.get("status") in STATUSES
        return NeMoGymMessage if has_status else NeMoGymEasyInputMessage
    if not isinstance(content, list):
        return NeMoGymEasyInputMessage
    if not content:
        return NeMoGymResponseOutputMessage if "id" in item else NeMoGymEasyInputMessage
    first = content[0]
    part_type = first.get("type") if isinstance(first, Mapping) else getattr(first, "type", None)
    return NeMoGymResponseOutputMessage if part_type in ("output_text", "refusal") else NeMoGymEasyInputMessage


def _type_from_fields(item: Mapping[str, Any]) -> str | None:
    """The type of a mapping without `type`, as a dump of only the fields that were set."""
    if "role" in item:
        return "message"
    if "name" in item and "arguments" in item:
        return "function_call" if "call_id" in item else "mcp_call"
    if "call_id" in item and "output" in item:
        return "function_call_output"
    return "reasoning" if "id" in item and "summary" in item else None


def _class_of_mapping(item: Mapping[str, Any], item_type: object) -> type[BaseModel] | None:
    if item_type == "message":
        return _message_class(item)
    if item_type == "function_call":
        return NeMoGymResponseFunctionToolCall
    if item_type == "function_call_output":
        return NeMoGymFunctionCallOutput
    if item_type == "reasoning":
        return NeMoGymResponseReasoningItem
    return NeMoGymHostedToolItem if isinstance(item_type, str) and item_type in _HOSTED_TYPES else None


def _tag_of_object(item: object) -> str | None:
    return next((cls.__name__ for cls in type(item).__mro__ if _CLASSES.get(cls.__name__) is cls), None)


def _with_tokens(item_class: type[BaseModel] | None, item: Mapping[str, Any]) -> str | None:
    if item_class is None:
        return None
    has_tokens = item.keys() >= REQUIRED_TOKEN_METADATA_FIELDS
    return (RESPONSES_TO_TRAIN.get(item_class, item_class) if has_tokens else item_class).__name__


def _tag_of_input(item: object) -> str | None:
    if not isinstance(item, Mapping):
        return _tag_of_object(item)
    item_type = item["type"] if "type" in item else _type_from_fields(item)
    return _with_tokens(_class_of_mapping(item, item_type), item)


def _tag_of_output(item: object) -> str | None:
    if not isinstance(item, Mapping):
        return _tag_of_object(item)
    item_type = item.get("type")
    if item_type == "function_call_output" and item.get("id") is not None and item.get("status") is not None:
        return NeMoGymResponseFunctionCallOutput.__name__
    return None if item_type == "compaction_trigger" else _with_tokens(_class_of_mapping(item, item_type), item)


def _checked_item(item: Any) -> Any:
    """An item, with the fields in place of an object of OpenAI's package. Token fields must be complete or absent."""
    if isinstance(item, BaseModel) and _tag_of_object(item) is None:
        item = fields_of_model(item)
    if isinstance(item, Mapping):
        missing = REQUIRED_TOKEN_METADATA_FIELDS - item.keys()
        if missing and missing != REQUIRED_TOKEN_METADATA_FIELDS:
            raise ValueError(f"token fields are incomplete: add {', '.join(sorted(missing))}, or leave out all of them")
    return item


#: An item of a request.
NeMoGymResponseInputItem = Annotated[
    SerializeAsAny[
        Annotated[
            _AnyItem,
            Discriminator(
                _tag_of_input,
                custom_error_type="unknown_item",
                custom_error_message="not an item of a conversation: `type` is unknown, or its fields name no item",
            ),
        ]
    ],
    BeforeValidator(_checked_item),
]

#: An item of a response. A mapping needs `type`.
NeMoGymResponseOutputItem = Annotated[
    SerializeAsAny[
        Annotated[
            _AnyItem,
            Discriminator(
                _tag_of_output,
                custom_error_type="unknown_item",
                custom_error_message="not an item of a response: `type` is missing or unknown",
            ),
        ]
    ],
    BeforeValidator(_checked_item),
]

#: The items of a request.
NeMoGymResponseInput = list[NeMoGymResponseInputItem]
