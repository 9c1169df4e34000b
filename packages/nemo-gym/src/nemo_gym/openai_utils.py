"""The Responses API's requests and responses as pydantic models, for code that builds them with these names.

A request is checked for unknown fields. What a server or a model sends is taken as it is: unknown fields are kept.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class NeMoGymResponseCreateParamsNonStreaming(BaseModel):
    """A request. `model_dump(exclude_unset=True)` gives the fields that were set."""

    model_config = ConfigDict(extra="forbid")

    background: bool | None = None
    include: list[str] | None = None
    input: str | list[dict[str, Any] | BaseModel]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: Literal[False] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


class _Received(BaseModel):
    model_config = ConfigDict(extra="allow")


class NeMoGymEasyInputMessage(_Received):
    """A message of the input."""

    content: str | list[dict[str, Any]]
    role: str
    type: Literal["message"] = "message"


class NeMoGymResponseOutputText(_Received):
    """A text of the model."""

    text: str
    annotations: list[Any] = []
    type: Literal["output_text"] = "output_text"


class NeMoGymResponseOutputMessage(_Received):
    """A message of the model."""

    id: str
    content: list[NeMoGymResponseOutputText | dict[str, Any]]
    role: Literal["assistant"] = "assistant"
    status: str = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseFunctionToolCall(_Received):
    """A function call of the model."""

    arguments: str
    call_id: str
    name: str
    id: str | None = None
    status: str | None = None
    type: Literal["function_call"] = "function_call"


class NeMoGymFunctionCallOutput(_Received):
    """The output of a function call."""

    call_id: str
    output: str
    id: str | None = None
    status: str | None = None
    type: Literal["function_call_output"] = "function_call_output"


class NeMoGymResponse(_Received):
    """A response. Its items stay plain objects."""

    output: list[dict[str, Any]]
    id: str = ""
    created_at: float = 0
    model: str = ""
    object: Literal["response"] = "response"
    parallel_tool_calls: bool = True
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = []
    usage: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
