"""Differences between Chat Completions servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReasoningPlace = Literal["reasoning_content", "reasoning", "reasoning_details", "think", "none"]


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """The settings of one chat server for which the dialect has no standard.

    `reasoning` is where requests put earlier reasoning: a field of the assistant's message, `think` for tags in its
    text (for a server without a reasoning parser; tags in its answers are parsed too), or `none` for a server that
    refuses reasoning. In answers all three fields are read, whatever the style. `limit` is the name of the token limit.
    `developer` says whether the server supports that role; if not, `system` replaces it.
    """

    reasoning: ReasoningPlace = "reasoning_content"
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    developer: bool = False


#: The style of most servers of open models.
OPEN = ChatStyle()

#: The style of OpenAI's endpoint, which refuses unknown fields.
OPENAI = ChatStyle(reasoning="none", limit="max_completion_tokens", developer=True)
