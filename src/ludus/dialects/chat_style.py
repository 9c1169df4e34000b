"""What Chat Completions servers disagree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReasoningPlace = Literal["reasoning_content", "reasoning", "reasoning_details", "think", "none"]


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """How one chat server wants what the dialect leaves open.

    `reasoning` is where earlier reasoning goes: a field of the assistant's message, `think` for tags in its text (a
    server without a reasoning parser, whose answers are then read the same way), or `none` for a server that refuses
    it. All three fields are understood in answers, whatever the style. `limit` is the name of the token limit, and
    `developer` says whether the server knows that role; where it does not, `system` stands in for it.
    """

    reasoning: ReasoningPlace = "reasoning_content"
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    developer: bool = False


#: What most servers of open models take.
OPEN = ChatStyle()

#: OpenAI's own endpoint, which refuses fields it does not know.
OPENAI = ChatStyle(reasoning="none", limit="max_completion_tokens", developer=True)
