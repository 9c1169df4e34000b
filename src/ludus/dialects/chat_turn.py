"""Converters for one assistant turn: several Responses items, one chat message.

A chat message holds one reasoning text, one content, and calls, in this order. What does not fit is listed as lost.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_parts import Part, content_from_chat, joined, part_to_chat
from ludus.dialects.chat_reasoning import from_details, readable, split_thought, summary, tagged, to_details
from ludus.dialects.chat_style import ChatStyle
from ludus.dialects.conversion import TOKEN_FIELDS, Conversion, Item, has_content, tokens_of

ChatMessage = dict[str, Any]

#: The order of a turn's items in a chat message.
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


class AssistantTurn:
    """Collects the items of one turn and converts them to one chat message.

    `notes` are the annotations and log probabilities of its texts (path, key, value). A chat completion can hold them,
    a message in a request cannot.
    """

    __slots__ = (
        "calls",
        "closed",
        "conversion",
        "fields",
        "message_path",
        "notes",
        "parts",
        "rank",
        "reasoning",
        "reasoning_path",
        "refusal",
        "style",
        "with_details",
    )

    def __init__(self, style: ChatStyle, conversion: Conversion) -> None:
        self.style = style
        self.with_details = style.reasoning == "reasoning_details"
        self.conversion = conversion
        self.rank = 0
        self.message_path = ""
        self.reasoning_path = ""  # of the last reasoning item
        self.reasoning: list[Any] = []
        self.closed = True  # whether the reasoning is complete
        self.parts: list[Part] = []
        self.refusal: str | None = None
        self.calls: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {}
        self.notes: list[tuple[str, str, list[Any]]] = []

    def add(self, kind: str, item: Item, path: str) -> bool:
        """Add an item. Returns True if it ends the turn: the last item of a model call carries its tokens."""
        conversion, rank = self.conversion, RANKS[kind]
        status = item.get("status")
        if status is not None and status != "completed" and (rank or self.style.reasoning != "think"):
            conversion.lose(f"{path}.status")
        if rank < self.rank:
            conversion.lose(path, "chat puts reasoning before text, and text before calls")
        elif rank < 2 and (self.message_path if rank else self.reasoning and not self.with_details):
            conversion.lose(path, f"it was joined to the {kind} before it")
        else:
            self.rank = rank
        if rank == 2:
            self.calls.append(_call_to_chat(item, path, conversion))
        elif rank == 1:
            self._add_message(item, path)
        else:
            self._add_reasoning(item, path)
        if tokens := tokens_of(item):
            self.fields.update(tokens)
        return bool(tokens)

    def _add_reasoning(self, item: Item, path: str) -> None:
        self.reasoning_path = path
        if self.style.reasoning == "none":
            self.conversion.lose(path, "this chat server takes no reasoning")
        elif self.with_details:
            before = len(from_details(self.reasoning, None, path, self.conversion))
            self.reasoning += to_details(item, path, self.conversion)
            if len(from_details(self.reasoning, None, path, self.conversion)) != before + 1:
                self.conversion.lose(path, "it cannot be told from the reasoning before it")
        elif (text := readable(item, path, self.conversion)) is not None:
            self.reasoning.append(text)
            self.closed = item.get("status") != "incomplete"

    def _add_message(self, item: Item, path: str) -> None:
        self.message_path = self.message_path or path
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
        converted = part_to_chat(part, path, self.conversion)
        if converted is not None:
            self.parts.append(converted)

    def finished(self) -> list[ChatMessage]:
        """The message in a list; an empty list if chat can hold nothing of the turn."""
        for path, key, _ in self.notes:
            self.conversion.lose(f"{path}.{key}")
        content: str | list[Part] | None = joined(self.parts) if self.parts else None
        if not content and self.message_path:
            alone = not (self.calls or self.reasoning or self.refusal is not None)
            if not alone and (self.parts or self.refusal is None):
                self.conversion.lose(self.message_path, "an empty text beside other things says nothing in chat")
            content = "" if alone else None
        if self.style.reasoning == "think":
            content = self._with_think_tags(content)
        elif self.reasoning:
            self.fields[self.style.reasoning] = self.reasoning if self.with_details else "\n\n".join(self.reasoning)
        if self.refusal is not None:
            self.fields["refusal"] = self.refusal
        if self.calls:
            self.fields["tool_calls"] = self.calls
        if content is None and not self.fields:
            return []
        return [{"role": "assistant", "content": content, **self.fields}]

    def _with_think_tags(self, content: str | list[Part] | None) -> str | list[Part] | None:
        """Prepend the reasoning in think tags. List a loss if parsing the result would give something else."""
        thought = "\n\n".join(self.reasoning) if self.reasoning else None
        with_tags = content if thought is None else tagged(thought, self.closed, content)
        first = with_tags[0].get("text") if isinstance(with_tags, list) and with_tags else with_tags
        if isinstance(first, str):
            rest = content if isinstance(content, str) else first if thought is None else ""
            if split_thought(first) != (thought, self.closed, rest):
                path = self.message_path or self.reasoning_path
                self.conversion.lose(path, "its text cannot be told from tagged reasoning")
        return with_tags


def plain_call(item: Item) -> dict[str, Any] | None:
    """The chat call of a function_call item that holds nothing else: no extra fields, no tokens. None for any other."""
    get = item.get
    name, arguments, call_id = get("name"), get("arguments"), get("call_id")
    known = 4 + ("id" in item) + ("status" in item)
    if len(item) == known and name.__class__ is str and arguments.__class__ is str and call_id.__class__ is str:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return None


def _call_to_chat(item: Item, path: str, conversion: Conversion) -> dict[str, Any]:
    if (plain := plain_call(item)) is not None:
        return plain
    name = conversion.text(item.get("name"), f"{path}.name")
    arguments = conversion.text(item.get("arguments"), f"{path}.arguments")
    call_id = conversion.text(item.get("call_id"), f"{path}.call_id")
    conversion.leftovers(item, _CALL, path)
    call: dict[str, Any] = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if item.get("extra_content") is not None:  # Gemini requires its signature of a call back
        call["extra_content"] = item["extra_content"]
    return call


def turn_from_chat(
    message: ChatMessage, path: str, style: ChatStyle, conversion: Conversion, new_id: str | None = None
) -> list[Item]:
    """Convert an assistant's message to one or more items. Calls without an id get one that starts with `new_id`."""
    conversion.leftovers(message, _CHAT_TURN, path)
    items, content = _reasoning_items(message, path, style, conversion)
    spoken = _message(content, message, path, conversion)
    calls = conversion.objects(message.get("tool_calls"), f"{path}.tool_calls")
    if spoken and (has_content(spoken["content"]) or not (items or calls)):  # beside other items, "" means no message
        items.append(spoken)
    elif message.get("name") is not None:
        conversion.lose(f"{path}.name")
    for index, call in enumerate(calls):
        items.append(_call_from_chat(call, f"{path}.tool_calls[{index}]", conversion, new_id and f"{new_id}_{index}"))
    items = items or [{"type": "message", "role": "assistant", "content": []}]  # null content: not even an empty text
    items[-1].update(tokens_of(message))
    return items


def _reasoning_items(
    message: ChatMessage, path: str, style: ChatStyle, conversion: Conversion
) -> tuple[list[Item], str | list[Part] | None]:
    """The reasoning items, and the content without its tagged reasoning."""
    content = message.get("content")
    if content is not None:
        content = content_from_chat(content, f"{path}.content", conversion, "output_text")
    text = conversion.optional_text(message.get("reasoning_content"), f"{path}.reasoning_content")
    other = conversion.optional_text(message.get("reasoning"), f"{path}.reasoning")
    if message.get("reasoning_details"):
        details = message["reasoning_details"]
        return from_details(details, text or other, f"{path}.reasoning_details", conversion), content
    if text and other and text != other:
        conversion.lose(f"{path}.reasoning", "reasoning_content says something else")
    if text or other:
        return [summary(text or other or "")], content
    return _split_tagged(content, path, conversion) if style.reasoning == "think" else ([], content)


def _split_tagged(
    content: str | list[Part] | None, path: str, conversion: Conversion
) -> tuple[list[Item], str | list[Part] | None]:
    parts = content if isinstance(content, list) else [{"type": "output_text", "text": content}]
    first = parts[0].get("text") if parts else None
    thought, closed, rest = split_thought(first) if isinstance(first, str) else (None, True, "")
    if thought is None:
        return [], content
    if isinstance(first, str) and not first.startswith("<think>"):
        conversion.lose(f"{path}.content", "the text before the reasoning, or the missing opening tag")
    item = summary(thought)
    if not closed:
        item["status"] = "incomplete"
    if not isinstance(content, list):
        return [item], rest or None
    return [item], [*([{**parts[0], "text": rest}] if rest else []), *parts[1:]] or None


def _message(content: str | list[Part] | None, message: ChatMessage, path: str, conversion: Conversion) -> Item | None:
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
    item: Item = {"type": "message", "role": "assistant", "content": content}
    if message.get("name") is not None:
        item["name"] = message["name"]
    return item


def _citation(note: dict[str, Any]) -> dict[str, Any]:
    inner = note.get("url_citation")
    return {"type": "url_citation", **inner} if isinstance(inner, dict) else note


def _call_from_chat(call: dict[str, Any], path: str, conversion: Conversion, new_id: str | None) -> Item:
    if call.get("type") not in (None, "function"):
        raise conversion.refuse(f"{path}.type", "function", call["type"])
    function = conversion.object(call.get("function"), f"{path}.function")
    conversion.leftovers(call, _CHAT_CALL, path)
    conversion.leftovers(function, _CHAT_FUNCTION, f"{path}.function")
    item: Item = {
        "type": "function_call",
        "call_id": conversion.text(call.get("id") or new_id, f"{path}.id"),
        "name": conversion.text(function.get("name"), f"{path}.function.name"),
        "arguments": conversion.json_text(function.get("arguments"), f"{path}.function.arguments"),
    }
    if call.get("extra_content") is not None:
        item["extra_content"] = call["extra_content"]
    return item
