"""Items, requests and responses of OpenAI's APIs as pydantic models of our own: no version of a client is needed."""

from __future__ import annotations

from nemo_gym._item_unions import NeMoGymResponseInput, NeMoGymResponseInputItem, NeMoGymResponseOutputItem
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

__all__ = [
    "REQUIRED_TOKEN_METADATA_FIELDS",
    "TOKEN_METADATA_FIELDS",
    "NeMoGymEasyInputMessage",
    "NeMoGymEasyInputMessageForTraining",
    "NeMoGymFunctionCallOutput",
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
    "TokenIDLogProbMixin",
    "accumulate_response_usage",
]
