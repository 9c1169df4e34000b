"""A response of the Responses API, and the tokens that it used. Unknown fields are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from nemo_gym._item_unions import NeMoGymResponseOutputItem
from nemo_gym._received import (
    Answer,
    NeMoGymReasoning,
    NeMoGymResponseTextConfig,
    NeMoGymResponseTool,
    NeMoGymResponseToolChoice,
    Received,
)


class NeMoGymResponseInputTokensDetails(Received):
    """Which input tokens came from a cache. `None`: unknown."""

    cached_tokens: int | None


class NeMoGymResponseOutputTokensDetails(Received):
    """Which output tokens are reasoning. `None`: unknown."""

    reasoning_tokens: int | None


class NeMoGymResponseUsage(Received):
    """The tokens that a response used."""

    input_tokens: int
    input_tokens_details: NeMoGymResponseInputTokensDetails
    output_tokens: int
    output_tokens_details: NeMoGymResponseOutputTokensDetails
    total_tokens: int

    @classmethod
    def sum_from_list(cls, usages: Iterable[NeMoGymResponseUsage]) -> NeMoGymResponseUsage:
        """The sum of the usages. A detail that is unknown in one of them is unknown in the sum."""
        usages = list(usages)
        return cls(
            input_tokens=sum(usage.input_tokens for usage in usages),
            input_tokens_details=NeMoGymResponseInputTokensDetails(
                cached_tokens=_sum_known(usage.input_tokens_details.cached_tokens for usage in usages)
            ),
            output_tokens=sum(usage.output_tokens for usage in usages),
            output_tokens_details=NeMoGymResponseOutputTokensDetails(
                reasoning_tokens=_sum_known(usage.output_tokens_details.reasoning_tokens for usage in usages)
            ),
            total_tokens=sum(usage.total_tokens for usage in usages),
        )


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """The sum of two usages. Neither argument changes, and the sum shares nothing with `additional`."""
    if additional is None:
        return total
    if total is None:
        return additional.model_copy(deep=True)
    return NeMoGymResponseUsage.sum_from_list([total, additional])


class NeMoGymIncompleteDetails(Received):
    """Why a response is incomplete, such as `max_output_tokens`."""

    reason: str | None = None


class NeMoGymResponseError(Received):
    """Why a response failed."""

    code: str | None = None
    message: str | None = None


class NeMoGymResponse(Answer):
    """A response. Its items can be given as objects or as mappings."""

    id: str
    created_at: float
    model: str
    object: Literal["response"]
    output: list[NeMoGymResponseOutputItem]
    parallel_tool_calls: bool
    tool_choice: str | NeMoGymResponseToolChoice
    tools: list[NeMoGymResponseTool]
    background: bool | None = None
    completed_at: float | None = None
    conversation: dict[str, Any] | None = None
    error: NeMoGymResponseError | None = None
    incomplete_details: NeMoGymIncompleteDetails | None = None
    instructions: str | list[Any] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    moderation: dict[str, Any] | None = None
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: NeMoGymReasoning | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: str | None = None
    temperature: float | None = None
    text: NeMoGymResponseTextConfig | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    usage: NeMoGymResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """All `output_text` parts of all messages, concatenated."""
        return "".join(
            field_of(part, "text")
            for item in self.output
            if field_of(item, "type") == "message" and isinstance(field_of(item, "content"), list)
            for part in field_of(item, "content")
            if field_of(part, "type") == "output_text"
        )


def field_of(value: Any, name: str) -> Any:
    """A field of an object, or of a mapping, which `model_construct` leaves as it is."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def is_from_model(item: Any) -> bool:
    """Whether an item of a conversation is the model's: an assistant message, reasoning or a call."""
    item_type = field_of(item, "type")
    if item_type in (None, "message"):
        return bool(field_of(item, "role") == "assistant")
    return item_type == "reasoning" or str(item_type).endswith("_call")
