"""A rollout as chat messages for training: the prompt, the completion and the tools.

`Losses` counts what chat cannot hold. A rollout that chat messages would misrepresent raises `LeftOut` with the reason,
and is counted instead of written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from math import isinf
from typing import Any, Literal, NamedTuple

import orjson

from ludus.dialects.chat_items import to_messages
from ludus.dialects.chat_style import ChatStyle
from ludus.dialects.chat_tools import tools_to_chat
from ludus.dialects.conversion import TOKEN_FIELDS, Conversion, has_content
from ludus.errors import Failure
from ludus.response import Item
from ludus.runtime.encoding import encode, may_have_long_integer
from ludus_data.recorded import Sample

ReasoningChoice = Literal["keep", "tags", "drop"]
ChatMessages = list[dict[str, Any]]

#: How each choice is written: as the field `reasoning_content`, in <think> tags in front of the text, or not at all.
STYLES: dict[str, ChatStyle] = {
    "keep": ChatStyle(),
    "tags": ChatStyle(reasoning="think"),
    "drop": ChatStyle(reasoning="none"),
}
_INDEX = re.compile(r"\[\d+\]")
_MOST_LOSSES = 100
_NO_REASONING = "this chat server takes no reasoning"
_TOKEN_FIELDS = frozenset(TOKEN_FIELDS)
_LONG_INTEGER = 19  #: the digits of the shortest integer that orjson may round


class LeftOut(Exception):
    """A rollout that a format cannot hold. The text is the reason under which it is counted."""


class Losses:
    """What could not be carried, counted by place: `input[].encrypted_content: chat has no place for it`.

    Field names come from models, so only the first hundred places are listed by name.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, lost: list[str], place: str) -> None:
        """Count a converter's losses. Converters call their argument `input`; `place` is its name here."""
        for entry in lost:
            self.lose(_lost_from(entry, place))

    def lose(self, what: str, times: int = 1) -> None:
        """Count a value that was not carried."""
        known = what in self.counts or len(self.counts) < _MOST_LOSSES
        self.counts[what if known else "other fields"] += times


@lru_cache(maxsize=1024)
def _lost_from(entry: str, place: str) -> str:
    path, _, why = _INDEX.sub("[]", entry).partition(": ")
    why = "reasoning was dropped" if why == _NO_REASONING else why
    return f"{place}{path.removeprefix('input')}: {why}"


class Conversation(NamedTuple):
    """Chat messages of a rollout. `tools` are in the nested form of Chat Completions."""

    prompt: ChatMessages
    completion: ChatMessages
    tools: list[dict[str, Any]]

    @property
    def messages(self) -> ChatMessages:
        """The whole conversation."""
        return self.prompt + self.completion


class OfferedTools:
    """The tools of rollouts in the nested form. Most rollouts share them, so the last ones are cached."""

    def __init__(self, target: str) -> None:
        self._target, self._offered = target, b""
        self._tools: list[dict[str, Any]] = []
        self._lost: list[str] = []

    def of(self, offered: Any, lost: list[str]) -> list[dict[str, Any]]:
        """The tools of one rollout. They are shared with other rollouts: do not change them."""
        written = encode(offered)  # compared as bytes: in Python, 1 equals true
        if written != self._offered:
            losses: list[str] = []
            self._tools = tools_to_chat(offered, Conversion("bad_request", self._target, losses))
            self._offered, self._lost = written, losses
        lost += self._lost
        return self._tools


class Conversations:
    """Turns rollouts into chat messages.

    Chat templates and trainers take the arguments of a call as an object (`as_objects`); OpenAI's own format keeps the
    text that the model wrote.
    """

    def __init__(self, losses: Losses, style: ChatStyle = STYLES["keep"], *, as_objects: bool = True) -> None:
        self._losses = losses
        self._style = style
        self._as_objects = as_objects
        self._tools = OfferedTools("chat")

    def of(self, sample: Sample) -> Conversation:
        """The conversation of a rollout."""
        lost_prompt: list[str] = []
        lost_output: list[str] = []
        lost_request: list[str] = []
        response, instructions, items = sample.response, sample.instructions, sample.prompt
        offered = response.get("tools")
        if items is None:
            raise LeftOut("has no prompt")
        try:
            prompt = self._messages(items, lost_prompt)
            completion = self._messages(response.get("output") or [], lost_output)
            tools = self._tools.of(offered, lost_request) if offered else []
            if instructions is not None and has_content(instructions):
                conversion = Conversion("bad_request", "chat", lost_request)
                prompt.insert(0, {"role": "system", "content": conversion.text(instructions, "instructions")})
        except (Failure, AttributeError, TypeError, KeyError) as error:
            raise LeftOut("has no form as chat messages") from error
        for message in completion:
            if message["role"] == "assistant":
                break
        else:
            raise LeftOut("the model wrote nothing")
        for call in sample.calls:
            if "tools" in call:
                self._losses.lose("model_calls[].tools: chat rows have one list of tools")
        if lost_prompt or lost_output or lost_request:
            self._losses.add(lost_prompt, "prompt")
            self._losses.add(lost_output, "output")
            self._losses.add(lost_request, "")
        return Conversation(prompt, completion, tools)

    def _messages(self, items: list[Item], lost: list[str]) -> ChatMessages:
        messages = to_messages(items, self._style, lost)
        for message in messages:
            if len(message) == 2 or "tool_call_id" in message:  # a text, or the output of a tool, and nothing else
                continue
            if not _TOKEN_FIELDS.isdisjoint(message):
                for field in TOKEN_FIELDS:
                    message.pop(field, None)
            if self._as_objects and "tool_calls" in message:
                for call in message["tool_calls"]:
                    function = call["function"]
                    function["arguments"] = argument_object(function["arguments"])
        return messages


def argument_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object. A model may write text that is no JSON object: `LeftOut`."""
    if arguments == "{}":
        return {}
    try:  # orjson is several times as fast, but rounds long integers and refuses lone surrogates
        value = orjson.loads(arguments or "{}")
        exact = len(arguments) < _LONG_INTEGER or not may_have_long_integer(arguments.encode())
    except ValueError:
        exact = False
    if not exact:
        try:
            value = _EXACT.decode(arguments)
        except (ValueError, RecursionError) as error:
            raise LeftOut("arguments of a call are not a JSON object") from error
    if not isinstance(value, dict):
        raise LeftOut("arguments of a call are not a JSON object")
    return value


def ends_with_answer(conversation: Conversation) -> Conversation:
    """The conversation, if its last message is the assistant's: some formats demand that."""
    if conversation.completion[-1]["role"] != "assistant":
        raise LeftOut("does not end with an assistant message")
    return conversation


def plain_text(content: Any) -> str | None:
    """Content as one text: a string, or parts that are all text. None for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text") if part.get("type") == "text" else None for part in content]
    return None if any(text is None for text in texts) else "".join(map(str, texts))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    if isinf(number := float(digits)):
        raise ValueError(f"{digits:.40} is greater than any number")
    return number


_EXACT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
