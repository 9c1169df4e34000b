"""What of a program's request reaches the model: its items, and the parameters that a program may choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.dialects.client_tools import function_items
from ludus.http.messages import Refusal
from ludus.http.replies import TRANSPORT
from ludus.http.token_counts import estimated_tokens
from ludus.response import Item, Response
from ludus.token_fields import tokens_from_items

#: Parameters that say how an answer is sampled.
SAMPLING = frozenset(
    {"temperature", "top_p", "top_k", "max_output_tokens", "seed", "presence_penalty", "frequency_penalty"}
)
#: What else of a request reaches the model. A program that a policy commands could add anything, such as another model.
PASSED_ON = frozenset({"instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "include"})
PASSED_ON |= {"stop", "prompt_cache_key"}
_OPERATORS = SAMPLING | {"metadata"}  # of a row: `metadata` may hold an `extra_body` for the model's server
_ABOUT_CALLER = {"metadata", "user", "safety_identifier", "client_metadata"}

Body = dict[str, Any]


def asked_params(body: Body) -> Body:
    """The parameters of a request, all of them."""
    return {key: value for key, value in body.items() if key not in TRANSPORT and value is not None}


def passed_on(body: Body, row: Mapping[str, Any]) -> tuple[Body, Body]:
    """The parameters of a call, and those that were left out. The operator chooses how answers are sampled."""
    asked = asked_params(body)
    own = {key: value for key, value in row.items() if key in _OPERATORS and value is not None}
    left_out = {key: asked[key] for key in sorted(asked.keys() - PASSED_ON - _ABOUT_CALLER)}
    return {**{key: value for key, value in asked.items() if key in PASSED_ON}, **own}, left_out


def tokens_of(response: Response, items: list[Item], params: Body) -> int:
    """The tokens of a call: as the model counted them, or estimated."""
    usage = response.usage
    if isinstance(total := usage.get("total_tokens"), int):
        return total
    if response.tokens is not None:
        return len(response.tokens.prompt_ids) + len(response.tokens.generated_ids)
    return estimated_tokens({**params, "input": [*items, *response.output]})


def read_items(items: list[Any]) -> list[Item]:
    """The items of a request as the policy gets them: without token ids, and with calls of functions only."""
    if not all(isinstance(item, dict) for item in items):
        raise no_items()
    return function_items(tokens_from_items(items)[0])


def no_items() -> Refusal:
    """The refusal of a request whose input is no list of items."""
    return Refusal.field(["input"], "value_error", "input must be a string or a list of items")
