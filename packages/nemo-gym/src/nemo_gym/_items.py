"""The items of a conversation as pydantic models, with the forms that carry token ids for training.

Items are plain models: authors inherit from them, copy them and assign to their fields. The items of hosted tools
share one class that keeps every field.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nemo_gym._parts import (
    NeMoGymContentPart,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymSummary,
)
from nemo_gym._received import ReadableValue

Status = Literal["in_progress", "completed", "incomplete"]
STATUSES = ("in_progress", "completed", "incomplete")

#: The token fields that a training item must have.
REQUIRED_TOKEN_METADATA_FIELDS = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs"})
#: All token fields of a training item.
TOKEN_METADATA_FIELDS = REQUIRED_TOKEN_METADATA_FIELDS | {"routed_experts"}


class TokenIDLogProbMixin(BaseModel):
    """The tokens of a model call: those of its prompt, and those it generated with their log probabilities."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: str | list[Any] | None = None


class NeMoGymEasyInputMessage(BaseModel):
    """A message of any role, with text or parts."""

    content: str | list[NeMoGymContentPart]
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"


class NeMoGymMessage(BaseModel):
    """A message with parts and a status."""

    content: list[NeMoGymContentPart]
    role: Literal["user", "system", "developer"]
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseOutputMessage(BaseModel):
    """A message of the model."""

    id: str
    content: list[NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal]
    role: Literal["assistant"] = "assistant"
    status: Status = "completed"
    type: Literal["message"] = "message"
    phase: str | None = None


class NeMoGymResponseFunctionToolCall(BaseModel):
    """A function call of the model. `arguments` is JSON text."""

    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: Status | None = None
    namespace: str | None = None


class NeMoGymFunctionCallOutput(BaseModel):
    """The output of a function call."""

    call_id: str
    output: str | list[NeMoGymContentPart]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: Status | None = None


class NeMoGymResponseFunctionCallOutput(NeMoGymFunctionCallOutput):
    """The output of a function call within a response, which has an id and a status."""

    id: str
    status: Status


class NeMoGymResponseReasoningItem(BaseModel):
    """The reasoning of the model before a message or a call."""

    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[ReadableValue] | None = None


class NeMoGymHostedToolItem(BaseModel):
    """An item of a hosted tool, or of the endpoint's own bookkeeping. Its fields stay as they are."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ReadableValue]

    type: Literal[
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    ] = "mcp_call"  # the only one that a mapping without `type` can be


class NeMoGymEasyInputMessageForTraining(NeMoGymEasyInputMessage, TokenIDLogProbMixin):
    """A message of any role with the tokens of its model call."""


class NeMoGymMessageForTraining(NeMoGymMessage, TokenIDLogProbMixin):
    """A message with parts, a status and the tokens of its model call."""


class NeMoGymResponseOutputMessageForTraining(NeMoGymResponseOutputMessage, TokenIDLogProbMixin):
    """A message of the model with the tokens of its model call."""


class NeMoGymResponseFunctionToolCallForTraining(NeMoGymResponseFunctionToolCall, TokenIDLogProbMixin):
    """A function call with the tokens of its model call."""


class NeMoGymResponseReasoningItemForTraining(NeMoGymResponseReasoningItem, TokenIDLogProbMixin):
    """A reasoning item with the tokens of its model call."""
