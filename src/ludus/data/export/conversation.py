"""A rollout as chat messages for training: the prompt, the completion and the tools.

Whatever chat cannot hold is counted in `Losses`. A rollout that has no honest form as chat messages raises `LeftOut`
with the reason, and is counted instead of written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Literal, NamedTuple

from ludus.data.recorded import Sample
from ludus.dialects.chat_items import to_messages
from ludus.dialects.chat_style import ChatStyle
from ludus.dialects.chat_tools import tools_to_chat
from ludus.dialects.conversion import TOKEN_FIELDS, Conversion, has_content
from ludus.errors import Failure
from ludus.response import Item

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


class LeftOut(Exception):
    """A rollout that a format cannot hold. The text is the reason under which it is counted."""


class Losses:
    """What could not be carried, counted by place: `input[].encrypted_content: chat has no place for it`.

    Field names come from models, so only the first hundred places are listed by name.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, lost: list[str], place: str) -> None:
        """Count what a converter listed. Converters call what they are given `input`; `place` is its name here."""
        for entry in lost:
            path, _, why = _INDEX.sub("[]", entry).partition(": ")
            why = "reasoning was dropped" if why == _NO_REASONING else why
            self.lose(f"{place}{path.removeprefix('input')}: {why}")

    def lose(self, what: str) -> None:
        """Count one value that was not carried."""
        known = what in self.counts or len(self.counts) < _MOST_LOSSES
        self.counts[what if known else "other fields"] += 1


class Conversation(NamedTuple):
    """Chat messages of a rollout. `tools` are in the nested form of Chat Completions."""

    prompt: ChatMessages
    completion: ChatMessages
    tools: list[dict[str, Any]]

    @property
    def messages(self) -> ChatMessages:
        """The whole conversation."""
        return self.prompt + self.completion


class Conversations:
    """Turns rollouts into chat messages.

    Chat templates and trainers take the arguments of a call as an object (`as_objects`); OpenAI's own format keeps the
    text that the model wrote.
    """

    def __init__(self, losses: Losses, style: ChatStyle = STYLES["keep"], *, as_objects: bool = True) -> None:
        self._losses = losses
        self._style = style
        self._as_objects = as_objects

    def of(self, sample: Sample) -> Conversation:
        """The conversation of a rollout."""
        lost_prompt: list[str] = []
        lost_output: list[str] = []
        lost_request: list[str] = []
        response, instructions = sample.response, sample.instructions
        offered = response.get("tools")
        tools: list[dict[str, Any]] = []
        try:
            prompt = self._messages(sample.prompt, lost_prompt)
            completion = self._messages(response.get("output") or [], lost_output)
            if offered or has_content(instructions):
                conversion = Conversion("bad_request", "chat", lost_request)
                tools = tools_to_chat(offered, conversion) if offered else []
                if has_content(instructions):
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
            if not _TOKEN_FIELDS.isdisjoint(message):
                for field in TOKEN_FIELDS:
                    message.pop(field, None)
            if self._as_objects and "tool_calls" in message:
                for call in message["tool_calls"]:
                    call["function"]["arguments"] = argument_object(call["function"]["arguments"])
        return messages


def argument_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object. Text that is no JSON object, as a model may write, has no such form."""
    try:
        found = json.loads(arguments or "{}", parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise LeftOut("arguments of a call are not a JSON object") from error
    if not isinstance(found, dict):
        raise LeftOut("arguments of a call are not a JSON object")
    return found


def ends_with_answer(conversation: Conversation) -> Conversation:
    """The conversation, if its last message is the assistant's, as some formats demand."""
    if conversation.completion[-1]["role"] != "assistant":
        raise LeftOut("does not end with an assistant message")
    return conversation


def plain_text(content: Any) -> str | None:
    """Content as one text: a string, or parts of which all are text. None if there is anything else in it."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text") if part.get("type") == "text" else None for part in content]
    return None if any(text is None for text in texts) else "".join(map(str, texts))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
