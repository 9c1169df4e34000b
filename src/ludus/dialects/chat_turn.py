"""One assistant turn: several items on our side, one message in chat.

A message holds reasoning, text and calls in this order, and one of each but the calls. What does not fit is noted.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_parts import Part, content_from_chat, joined, part_to_chat
from ludus.dialects.chat_reasoning import from_details, readable, split_thought, summary, tagged, to_details
from ludus.dialects.chat_style import ChatStyle
from ludus.dialects.conversion import TOKEN_FIELDS, Conversion, says, tokens_of
from ludus.response import Item

ChatMessage = dict[str, Any]

#: The items of a turn, in the order in which chat can hold them.
RANKS = {"reasoning": 0, "message": 1, "function_call": 2}

_MESSAGE = frozenset({"type", "role", "content", "id", "status", "name", *TOKEN_FIELDS})
_CALL = frozenset({"type", "call_id", "name", "arguments", "id", "status", "extra_content", *TOKEN_FIELDS})
_CHAT_CALL = frozenset({"id", "type", "function", "index", "extra_content"})
_CHAT_FUNCTION = frozenset({"name", "arguments"})
_CHAT_TURN = frozenset(
    {"role", "content", "refusal", "annotations", "tool_calls", "name", *TOKEN_FIELDS}
    | {"reasoning_content", "reasoning", "reasoning_details"}
)
_NOTES = ("annotations", "logprobs")


class Turn:
    """The items of one turn, on their way into one message.

    `notes` are the annotations and log probabilities of its texts (path, key, value): a message that goes back to a
    server has no place for them, an answer has.
    """

    __slots__ = (
        "calls",
        "closed",
        "conversion",
        "fields",
        "notes",
        "parts",
        "rank",
        "refusal",
        "said",
        "style",
        "thought",
        "thoughts",
    )

    def __init__(self, style: ChatStyle, conversion: Conversion) -> None:
        self.style = style
        self.conversion = conversion
        self.rank = 0
        self.said = ""  # the path of the message item
        self.thought = ""  # the path of the last reasoning item
        self.thoughts: list[Any] = []
        self.closed = True
        self.parts: list[Part] = []
        self.refusal: str | None = None
        self.calls: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {}
        self.notes: list[tuple[str, str, list[Any]]] = []

    def add(self, kind: str, item: Item, path: str) -> bool:
        """Take in an item; True when it ends the turn, because it carries the tokens of its model call."""
        conversion, rank = self.conversion, RANKS[kind]
        status = item.get("status")
        if status is not None and status != "completed" and (rank or self.style.reasoning != "think"):
            conversion.lose(f"{path}.status")
        if rank < self.rank:
            conversion.lose(path, "chat puts reasoning before text, and text before calls")
        elif rank < 2 and (self.said if rank else self.thoughts and self.style.reasoning != "reasoning_details"):
            conversion.lose(path, f"it was joined to the {kind} before it")
        else:
            self.rank = rank
        if rank == 2:
            self.calls.append(_call_to_chat(item, path, conversion))
        elif rank == 1:
            self._say(item, path)
        else:
            self._think(item, path)
        if tokens := tokens_of(item):
            self.fields.update(tokens)
        return bool(tokens)

    def _think(self, item: Item, path: str) -> None:
        self.thought = path
        if self.style.reasoning == "none":
            self.conversion.lose(path, "this chat server takes no reasoning")
        elif self.style.reasoning == "reasoning_details":
            before = len(from_details(self.thoughts, None, path, self.conversion))
            self.thoughts += to_details(item, path, self.conversion)
            if len(from_details(self.thoughts, None, path, self.conversion)) != before + 1:
                self.conversion.lose(path, "it cannot be told from the reasoning before it")
        elif (text := readable(item, path, self.conversion)) is not None:
            self.thoughts.append(text)
            self.closed = item.get("status") != "incomplete"

    def _say(self, item: Item, path: str) -> None:
        self.said = self.said or path
        self.conversion.leftovers(item, _MESSAGE, path)
        if item.get("name") is not None:
            self.fields["name"] = item["name"]
        content = item.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for index, part in enumerate(self.conversion.objects(content, f"{path}.content")):
            self._add_part(part, f"{path}.content[{index}]")

    def _add_part(self, part: Part, path: str) -> None:
        if self.refusal is not None:
            self.conversion.lose(path, "chat has place for one refusal, after the text")
        if part.get("type") == "refusal":
            self.refusal = (self.refusal or "") + self.conversion.text(part.get("refusal"), f"{path}.refusal")
            return
        if part.get("annotations") or part.get("logprobs"):
            self.notes += [(path, key, part[key]) for key in _NOTES if part.get(key)]
            part = {key: value for key, value in part.items() if key not in _NOTES}
        made = part_to_chat(part, path, self.conversion)
        if made is not None:
            self.parts.append(made)

    def finished(self) -> list[ChatMessage]:
        """The message, or none where nothing of the turn could be carried."""
        for path, key, _ in self.notes:
            self.conversion.lose(f"{path}.{key}")
        content: str | list[Part] | None = joined(self.parts) if self.parts else None
        if not content and self.said:
            alone = not (self.calls or self.thoughts or self.refusal is not None)
            if not alone and (self.parts or self.refusal is None):
                self.conversion.lose(self.said, "an empty text beside other things says nothing in chat")
            content = "" if alone else None
        if self.style.reasoning == "think":
            content = self._tagged(content)
        elif self.thoughts:
            details = self.style.reasoning == "reasoning_details"
            self.fields[self.style.reasoning] = self.thoughts if details else "\n\n".join(self.thoughts)
        if self.refusal is not None:
            self.fields["refusal"] = self.refusal
        if self.calls:
            self.fields["tool_calls"] = self.calls
        if content is None and not self.fields:
            return []
        return [{"role": "assistant", "content": content, **self.fields}]

    def _tagged(self, content: str | list[Part] | None) -> str | list[Part] | None:
        """Content with the reasoning in tags, and a note where it would not be read back as it was written."""
        thought = "\n\n".join(self.thoughts) if self.thoughts else None
        made = content if thought is None else tagged(thought, self.closed, content)
        first = made[0].get("text") if isinstance(made, list) and made else made
        if isinstance(first, str):
            rest = content if isinstance(content, str) else first if thought is None else ""
            if split_thought(first) != (thought, self.closed, rest):
                self.conversion.lose(self.said or self.thought, "its text cannot be told from tagged reasoning")
        return made


def _call_to_chat(item: Item, path: str, conversion: Conversion) -> dict[str, Any]:
    name = conversion.text(item.get("name"), f"{path}.name")
    arguments = conversion.text(item.get("arguments"), f"{path}.arguments")
    call_id = conversion.text(item.get("call_id"), f"{path}.call_id")
    conversion.leftovers(item, _CALL, path)
    call: dict[str, Any] = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if item.get("extra_content") is not None:  # Gemini signs its calls here, and wants the signature back
        call["extra_content"] = item["extra_content"]
    return call


def turn_from_chat(
    message: ChatMessage, path: str, style: ChatStyle, conversion: Conversion, unnamed: str | None = None
) -> list[Item]:
    """The items of an assistant's message, at least one. `unnamed` starts the ids of calls that came without one."""
    conversion.leftovers(message, _CHAT_TURN, path)
    items, content = _thoughts(message, path, style, conversion)
    said = _said(content, message, path, conversion)
    calls = conversion.objects(message.get("tool_calls"), f"{path}.tool_calls")
    if said and (says(said["content"]) or not (items or calls)):  # beside other things, "" means that nothing was said
        items.append(said)
    elif message.get("name") is not None:
        conversion.lose(f"{path}.name")
    for index, call in enumerate(calls):
        items.append(_call_from_chat(call, f"{path}.tool_calls[{index}]", conversion, unnamed and f"{unnamed}_{index}"))
    items = items or [{"type": "message", "role": "assistant", "content": ""}]
    items[-1].update(tokens_of(message))
    return items


def _thoughts(
    message: ChatMessage, path: str, style: ChatStyle, conversion: Conversion
) -> tuple[list[Item], str | list[Part] | None]:
    """The reasoning items, and the content without the reasoning that was tagged in it."""
    given = message.get("content")
    content = None if given is None else content_from_chat(given, f"{path}.content", conversion, "output_text")
    text = conversion.optional_text(message.get("reasoning_content"), f"{path}.reasoning_content")
    other = conversion.optional_text(message.get("reasoning"), f"{path}.reasoning")
    if message.get("reasoning_details"):
        said = message["reasoning_details"]
        return from_details(said, text or other, f"{path}.reasoning_details", conversion), content
    if text and other and text != other:
        conversion.lose(f"{path}.reasoning", "reasoning_content says something else")
    if text or other:
        return [summary(text or other or "")], content
    return _untagged(content, path, conversion) if style.reasoning == "think" else ([], content)


def _untagged(
    content: str | list[Part] | None, path: str, conversion: Conversion
) -> tuple[list[Item], str | list[Part] | None]:
    parts = content if isinstance(content, list) else [{"type": "output_text", "text": content}]
    first = parts[0].get("text") if parts else None
    thought, closed, rest = split_thought(first) if isinstance(first, str) else (None, True, "")
    if thought is None:
        return [], content
    if isinstance(first, str) and not first.startswith("<think>"):
        conversion.lose(f"{path}.content", "what came before the reasoning, or that nothing opened it")
    item = summary(thought)
    if not closed:
        item["status"] = "incomplete"
    if not isinstance(content, list):
        return [item], rest or None
    return [item], [*([{**parts[0], "text": rest}] if rest else []), *parts[1:]] or None


def _said(content: str | list[Part] | None, message: ChatMessage, path: str, conversion: Conversion) -> Item | None:
    refusal = conversion.optional_text(message.get("refusal"), f"{path}.refusal")
    notes = conversion.objects(message.get("annotations"), f"{path}.annotations")
    if notes:
        if isinstance(content, str):
            content = [{"type": "output_text", "text": content, "annotations": [_citation(note) for note in notes]}]
        else:
            conversion.lose(f"{path}.annotations", "there is not one text that they could belong to")
    if refusal:
        texts = [{"type": "output_text", "text": content}] if isinstance(content, str) and content else content
        content = [*(texts or ()), {"type": "refusal", "refusal": refusal}]
    if content is None:
        return None
    said: Item = {"type": "message", "role": "assistant", "content": content}
    if message.get("name") is not None:
        said["name"] = message["name"]
    return said


def _citation(note: dict[str, Any]) -> dict[str, Any]:
    inner = note.get("url_citation")
    return {"type": "url_citation", **inner} if isinstance(inner, dict) else note


def _call_from_chat(call: dict[str, Any], path: str, conversion: Conversion, unnamed: str | None) -> Item:
    if call.get("type") not in (None, "function"):
        raise conversion.refuse(f"{path}.type", "function", call["type"])
    called = conversion.object(call.get("function"), f"{path}.function")
    conversion.leftovers(call, _CHAT_CALL, path)
    conversion.leftovers(called, _CHAT_FUNCTION, f"{path}.function")
    item: Item = {
        "type": "function_call",
        "call_id": conversion.text(call.get("id") or unnamed, f"{path}.id"),
        "name": conversion.text(called.get("name"), f"{path}.function.name"),
        "arguments": conversion.json_text(called.get("arguments"), f"{path}.function.arguments"),
    }
    if call.get("extra_content") is not None:
        item["extra_content"] = call["extra_content"]
    return item
