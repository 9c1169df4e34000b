"""The messages and tools of a Chat Completions request as typed dictionaries. Unknown keys are dropped."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Discriminator, Tag
from typing_extensions import TypedDict

from nemo_gym._items import REQUIRED_TOKEN_METADATA_FIELDS

_DROP_UNKNOWN = ConfigDict(extra="ignore")  # a typed dictionary without a configuration takes that of its owner


class NeMoGymChatCompletionContentPartTextParam(TypedDict):
    """A text."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    text: str
    type: Literal["text"]


#: A text, or a part of another kind (`image_url`, `input_audio`, `video_url`, `file`, `refusal`), which stays as it is.
ChatPart = NeMoGymChatCompletionContentPartTextParam | dict[str, Any]
ChatContent = str | list[ChatPart]


class NeMoGymChatCompletionMessageToolCallFunctionParam(TypedDict):
    """A function's name and its arguments as JSON text."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCallParam(TypedDict):
    """A function call in an assistant's message."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    id: str
    function: NeMoGymChatCompletionMessageToolCallFunctionParam
    type: Literal["function"]


class NeMoGymChatCompletionCustomToolCallParam(TypedDict):
    """A call of a custom tool in an assistant's message."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    id: str
    custom: dict[str, Any]
    type: Literal["custom"]


class NeMoGymChatCompletionUserMessageParam(TypedDict):
    """A message of the user."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    content: ChatContent
    role: Literal["user"]
    name: NotRequired[str]


class NeMoGymChatCompletionSystemMessageParam(TypedDict):
    """A system message."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    content: ChatContent
    role: Literal["system"]
    name: NotRequired[str]


class NeMoGymChatCompletionDeveloperMessageParam(TypedDict):
    """A developer message."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    content: ChatContent
    role: Literal["developer"]
    name: NotRequired[str]


class NeMoGymChatCompletionToolMessageParam(TypedDict):
    """The output of a function call."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    content: ChatContent
    role: Literal["tool"]
    tool_call_id: str


class NeMoGymChatCompletionAssistantMessageParam(TypedDict):
    """A message of the model."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    role: Literal["assistant"]
    audio: NotRequired[dict[str, Any] | None]
    content: NotRequired[ChatContent | None]
    function_call: NotRequired[dict[str, Any] | None]
    name: NotRequired[str]
    reasoning_content: NotRequired[str | None]
    refusal: NotRequired[str | None]
    tool_calls: NotRequired[
        list[NeMoGymChatCompletionMessageToolCallParam | NeMoGymChatCompletionCustomToolCallParam] | None
    ]


class NeMoGymChatCompletionAssistantMessageForTrainingParam(NeMoGymChatCompletionAssistantMessageParam):
    """A message of the model with the tokens of its call."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: NotRequired[str | list[Any] | None]


def _message_tag(message: Any) -> str | None:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "assistant" and message.keys() >= REQUIRED_TOKEN_METADATA_FIELDS:
        return "assistant with tokens"
    return role if isinstance(role, str) else None


#: A message of a request. Its role decides which one.
NeMoGymChatCompletionMessageParam = Annotated[
    Annotated[NeMoGymChatCompletionUserMessageParam, Tag("user")]
    | Annotated[NeMoGymChatCompletionSystemMessageParam, Tag("system")]
    | Annotated[NeMoGymChatCompletionDeveloperMessageParam, Tag("developer")]
    | Annotated[NeMoGymChatCompletionToolMessageParam, Tag("tool")]
    | Annotated[NeMoGymChatCompletionAssistantMessageParam, Tag("assistant")]
    | Annotated[NeMoGymChatCompletionAssistantMessageForTrainingParam, Tag("assistant with tokens")],
    Discriminator(
        _message_tag,
        custom_error_type="unknown_role",
        custom_error_message="`role` must be user, system, developer, assistant or tool",
    ),
]


class NeMoGymChatCompletionFunctionParam(TypedDict):
    """The definition of a function in a tool of Chat Completions."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class NeMoGymChatCompletionToolParam(TypedDict):
    """A tool of Chat Completions."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    function: NeMoGymChatCompletionFunctionParam
    type: Literal["function"]


class NeMoGymFunctionToolParam(TypedDict):
    """A function as a tool of the Responses API."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    name: str
    parameters: dict[str, Any] | None
    strict: bool | None
    type: Literal["function"]
    description: NotRequired[str | None]
    defer_loading: NotRequired[bool]
