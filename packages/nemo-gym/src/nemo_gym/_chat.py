"""Requests and answers of Chat Completions. A request refuses unknown fields; an answer keeps them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, SerializeAsAny, Tag

from nemo_gym._chat_messages import NeMoGymChatCompletionMessageParam, NeMoGymChatCompletionToolParam
from nemo_gym._items import REQUIRED_TOKEN_METADATA_FIELDS, TokenIDLogProbMixin
from nemo_gym._received import Answer, ReadableValue, Received


class NeMoGymChatCompletionCreateParamsNonStreaming(BaseModel):
    """A request. `model_dump(exclude_unset=True)` gives the fields that were set."""

    model_config = ConfigDict(extra="forbid")

    messages: list[NeMoGymChatCompletionMessageParam]
    audio: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    function_call: str | dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, str] | None = None
    modalities: list[str] | None = None
    model: str | None = None
    moderation: dict[str, Any] | None = None
    n: int | None = None
    output_config: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    prediction: dict[str, Any] | None = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    safety_identifier: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: Literal[False] | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    thinking: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[NeMoGymChatCompletionToolParam | dict[str, Any]] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: str | None = None
    web_search_options: dict[str, Any] | None = None


class NeMoGymFunction(Received):
    """A function's name and its arguments as JSON text."""

    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(Received):
    """A function call of the model."""

    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


class NeMoGymChatCompletionMessage(Received):
    """A message of the model."""

    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"] = "assistant"
    annotations: list[ReadableValue] | None = None
    audio: ReadableValue | None = None
    function_call: NeMoGymFunction | None = None
    tool_calls: list[NeMoGymChatCompletionMessageToolCall] | None = None


class NeMoGymChatCompletionMessageForTraining(NeMoGymChatCompletionMessage, TokenIDLogProbMixin):
    """A message of the model with the tokens of its call."""


def _message_tag(message: Any) -> str:
    if isinstance(message, dict):
        has_tokens = message.keys() >= REQUIRED_TOKEN_METADATA_FIELDS
    else:
        has_tokens = isinstance(message, NeMoGymChatCompletionMessageForTraining)
    return "NeMoGymChatCompletionMessageForTraining" if has_tokens else "NeMoGymChatCompletionMessage"


class NeMoGymChoiceLogprobs(Received):
    """The log probabilities of an answer's tokens."""

    content: list[ReadableValue] | None = None
    refusal: list[ReadableValue] | None = None


class NeMoGymChoice(Answer):
    """One answer of the model."""

    finish_reason: str | None
    index: int
    message: SerializeAsAny[
        Annotated[
            Annotated[NeMoGymChatCompletionMessage, Tag("NeMoGymChatCompletionMessage")]
            | Annotated[NeMoGymChatCompletionMessageForTraining, Tag("NeMoGymChatCompletionMessageForTraining")],
            Discriminator(_message_tag),
        ]
    ]
    logprobs: NeMoGymChoiceLogprobs | None = None


class NeMoGymPromptTokensDetails(Received):
    """A breakdown of a prompt's tokens. `None`: unknown."""

    audio_tokens: int | None = None
    cached_tokens: int | None = None


class NeMoGymCompletionTokensDetails(Received):
    """A breakdown of an answer's tokens. `None`: unknown."""

    accepted_prediction_tokens: int | None = None
    audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class NeMoGymCompletionUsage(Received):
    """The tokens that a chat completion used."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    completion_tokens_details: NeMoGymCompletionTokensDetails | None = None
    prompt_tokens_details: NeMoGymPromptTokensDetails | None = None


class NeMoGymChatCompletion(Answer):
    """An answer of Chat Completions."""

    id: str
    choices: list[NeMoGymChoice]
    created: int
    model: str
    object: Literal["chat.completion"]
    moderation: dict[str, Any] | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: NeMoGymCompletionUsage | None = None
