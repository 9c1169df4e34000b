"""A request of the Responses API. Unknown fields are refused: a misspelt setting would otherwise be lost silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag

from nemo_gym._item_unions import NeMoGymResponseInput
from nemo_gym._items import NeMoGymHostedToolItem


def _replayable(item: Any) -> Any:
    """An item as a request takes it. Three fields of a response's items have other values in a request."""
    if isinstance(item, NeMoGymHostedToolItem):
        fields = item.model_dump()
        adapted = _replayable(fields)
        return item if adapted == fields else type(item)(**adapted)
    if not isinstance(item, Mapping):
        return item
    fields = dict(item)
    if fields.get("type") == "computer_call_output" and fields.get("status") == "failed":
        del fields["status"]
    if fields.get("type") == "additional_tools":
        fields["role"] = "developer"
    if fields.get("type") in ("additional_tools", "tool_search_output") and isinstance(fields.get("tools"), list):
        fields["tools"] = [_loaded_tool(tool) for tool in fields["tools"]]
    return fields


def _loaded_tool(tool: Any) -> Any:
    """A tool whose `defer_loading` is not null."""
    if isinstance(tool, Mapping) and "defer_loading" in tool and tool["defer_loading"] is None:
        return {**tool, "defer_loading": False}
    return tool


def _replayable_items(items: Any) -> Any:
    return [_replayable(item) for item in items] if isinstance(items, list) else items


def _input_tag(value: object) -> str:
    return "text" if isinstance(value, str) else "items"


class NeMoGymResponseCreateParamsNonStreaming(BaseModel):
    """A request. `model_dump(exclude_unset=True)` gives the fields that were set."""

    model_config = ConfigDict(extra="forbid")

    background: bool | None = None
    context_management: list[dict[str, Any]] | None = None
    conversation: str | dict[str, Any] | None = None
    include: list[str] | None = None
    input: Annotated[
        Annotated[str, Tag("text")] | Annotated[NeMoGymResponseInput, BeforeValidator(_replayable_items), Tag("items")],
        Discriminator(_input_tag),
    ]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    moderation: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: Literal[False] | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None
