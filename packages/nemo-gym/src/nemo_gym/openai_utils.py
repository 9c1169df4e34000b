"""Items, requests and responses of OpenAI's APIs as pydantic models of our own: no version of a client is needed.

The models of Chat Completions are imported when they are first used: most servers never use them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nemo_gym._endpoint import (
    RATE_LIMIT_ERROR_CODES,
    RETRY_ERROR_CODES,
    NeMoGymAsyncOpenAI,
    PermanentEndpointError,
)
from nemo_gym._item_unions import (
    RESPONSES_TO_TRAIN,
    NeMoGymResponseInput,
    NeMoGymResponseInputItem,
    NeMoGymResponseOutputItem,
)
from nemo_gym._items import (
    REQUIRED_TOKEN_METADATA_FIELDS,
    TOKEN_METADATA_FIELDS,
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
    TokenIDLogProbMixin,
)
from nemo_gym._parts import (
    NeMoGymResponseInputText,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymSummary,
)
from nemo_gym._requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._responses import (
    NeMoGymIncompleteDetails,
    NeMoGymResponse,
    NeMoGymResponseError,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
    accumulate_response_usage,
)

if TYPE_CHECKING:
    from nemo_gym._chat import (
        NeMoGymChatCompletion,
        NeMoGymChatCompletionCreateParamsNonStreaming,
        NeMoGymChatCompletionMessage,
        NeMoGymChatCompletionMessageForTraining,
        NeMoGymChatCompletionMessageToolCall,
        NeMoGymChoice,
        NeMoGymCompletionUsage,
        NeMoGymFunction,
    )
    from nemo_gym._chat_messages import (
        NeMoGymChatCompletionAssistantMessageForTrainingParam,
        NeMoGymChatCompletionAssistantMessageParam,
        NeMoGymChatCompletionContentPartTextParam,
        NeMoGymChatCompletionDeveloperMessageParam,
        NeMoGymChatCompletionMessageParam,
        NeMoGymChatCompletionMessageToolCallFunctionParam,
        NeMoGymChatCompletionMessageToolCallParam,
        NeMoGymChatCompletionSystemMessageParam,
        NeMoGymChatCompletionToolMessageParam,
        NeMoGymChatCompletionToolParam,
        NeMoGymChatCompletionUserMessageParam,
        NeMoGymFunctionToolParam,
    )

__all__ = [
    "RATE_LIMIT_ERROR_CODES",
    "REQUIRED_TOKEN_METADATA_FIELDS",
    "RESPONSES_TO_TRAIN",
    "RETRY_ERROR_CODES",
    "TOKEN_METADATA_FIELDS",
    "NeMoGymAsyncOpenAI",
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionAssistantMessageForTrainingParam",
    "NeMoGymChatCompletionAssistantMessageParam",
    "NeMoGymChatCompletionContentPartTextParam",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionDeveloperMessageParam",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionMessageForTraining",
    "NeMoGymChatCompletionMessageParam",
    "NeMoGymChatCompletionMessageToolCall",
    "NeMoGymChatCompletionMessageToolCallFunctionParam",
    "NeMoGymChatCompletionMessageToolCallParam",
    "NeMoGymChatCompletionSystemMessageParam",
    "NeMoGymChatCompletionToolMessageParam",
    "NeMoGymChatCompletionToolParam",
    "NeMoGymChatCompletionUserMessageParam",
    "NeMoGymChoice",
    "NeMoGymCompletionUsage",
    "NeMoGymEasyInputMessage",
    "NeMoGymEasyInputMessageForTraining",
    "NeMoGymFunction",
    "NeMoGymFunctionCallOutput",
    "NeMoGymFunctionToolParam",
    "NeMoGymHostedToolItem",
    "NeMoGymIncompleteDetails",
    "NeMoGymMessage",
    "NeMoGymMessageForTraining",
    "NeMoGymResponse",
    "NeMoGymResponseCreateParamsNonStreaming",
    "NeMoGymResponseError",
    "NeMoGymResponseFunctionCallOutput",
    "NeMoGymResponseFunctionToolCall",
    "NeMoGymResponseFunctionToolCallForTraining",
    "NeMoGymResponseInput",
    "NeMoGymResponseInputItem",
    "NeMoGymResponseInputText",
    "NeMoGymResponseInputTokensDetails",
    "NeMoGymResponseOutputItem",
    "NeMoGymResponseOutputMessage",
    "NeMoGymResponseOutputMessageForTraining",
    "NeMoGymResponseOutputRefusal",
    "NeMoGymResponseOutputText",
    "NeMoGymResponseOutputTokensDetails",
    "NeMoGymResponseReasoningItem",
    "NeMoGymResponseReasoningItemForTraining",
    "NeMoGymResponseUsage",
    "NeMoGymSummary",
    "PermanentEndpointError",
    "TokenIDLogProbMixin",
    "accumulate_response_usage",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("nemo_gym._chat", "nemo_gym._chat_messages"):
            if (value := getattr(importlib.import_module(module), name, None)) is not None:
                return globals().setdefault(name, value)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
