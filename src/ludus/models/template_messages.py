"""The messages that a chat template renders, from the items of a request.

- The text of users, systems and tools holds no control tokens: a cut mark inside each splits the rendered text into
  pieces that are tokenised separately, so none of them can forge a turn.
- For a template without tool support, the tools become instructions in the format of `chatml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ludus.dialects.chat_reasoning import CLOSING, OPENING
from ludus.model import Request
from ludus.models import chatml
from ludus.response import Item, Response, texts_of

#: A Unicode noncharacter that splits a text into pieces, which are tokenised separately.
CUT = "\ufdd0"


class TemplateMessages:
    """Makes the messages and tools for one template, whose control tokens are `special`."""

    def __init__(self, template: str, special: Iterable[str] | re.Pattern[str]) -> None:
        self.has_tools = re.search(r"\btools\b", template) is not None
        self._reasoning = "reasoning_content" in template
        if not isinstance(special, re.Pattern):
            tokens = sorted(map(re.escape, special), key=len, reverse=True)
            special = re.compile("|".join(tokens) or r"(?!)")
        self._special = special

    def tools(self, request: Request) -> list[dict[str, Any]] | None:
        """The tools for the template; None if there are none, or the template has no place for them."""
        tools = [_nested(tool) for tool in chatml.offered_tools(request.params)] if self.has_tools else []
        return self._split_control(tools) or None

    def messages(self, request: Request) -> Iterator[dict[str, Any]]:
        """The messages of a request."""
        items, params = request.input, request.params
        turns = chatml.turns(items, {**params, "tools": None} if self.has_tools else params)
        ends = [turn.at for turn in turns[1:]] + [len(items)]
        for turn, end in zip(turns, ends, strict=True):
            if turn.role == "assistant":
                yield self._turn_of_items(turn, items, end)
            elif self.has_tools and turn.at >= 0 and items[turn.at].get("type") == "function_call_output":
                yield from (self._output(item) for item in items[turn.at : end] if "output" in item)
            else:
                yield {"role": turn.role, "content": self._split_control(turn.text)}

    def _turn_of_items(self, turn: chatml.ChatmlTurn, items: list[Item], end: int) -> dict[str, Any]:
        group = [item for item in items[turn.at : end] if item.get("type") != "reasoning"]
        calls = [item for item in group if item.get("type") == "function_call"] if self.has_tools else []
        text = chatml.assistant_text([item for item in group if not calls or item.get("type") != "function_call"])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [_nested_call(item) for item in calls]
        before = items[turn.at - 1] if turn.at > 0 else {}
        if before.get("type") == "reasoning":
            thought = Response.of(before).reasoning
            if self._reasoning:
                message["reasoning_content"] = thought
            else:
                message["content"] = f"{OPENING}{thought}{CLOSING}{text}"
        return message

    def _output(self, item: Item) -> dict[str, Any]:
        output = item["output"]
        text = output if isinstance(output, str) else texts_of({"content": output})
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": self._split_control(text)}

    def _split_control(self, value: Any) -> Any:
        """The same value with a cut mark inside every control token in its texts."""
        if isinstance(value, str):
            return self._special.sub(lambda token: f"{token[0][0]}{CUT}{token[0][1:]}", value)
        if isinstance(value, list):
            return [self._split_control(entry) for entry in value]
        return {key: self._split_control(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _nested(tool: Item) -> dict[str, Any]:
    function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _nested_call(item: Item) -> dict[str, Any]:
    """A call in the nested form of chat, with parsed arguments if they are JSON."""
    arguments = item.get("arguments") or "{}"
    try:
        arguments = json.loads(arguments)
    except ValueError:
        pass
    return {"type": "function", "id": item.get("call_id"), "function": {"name": item["name"], "arguments": arguments}}
