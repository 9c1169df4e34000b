"""Converters between Responses items and chat messages.

A round trip changes nothing that `lost` does not list, except equivalent forms: item ids, `status: completed`, null and
empty fields, a single text as a string or as a part, reasoning as `summary` or `content`.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_parts import content_from_chat, content_to_chat
from ludus.dialects.chat_style import OPEN, ChatStyle
from ludus.dialects.chat_turn import RANKS, AssistantTurn, ChatMessage, plain_call, turn_from_chat
from ludus.dialects.conversion import Conversion, Item

_MESSAGE = frozenset({"type", "role", "content", "id", "status", "name"})
_OUTPUT = frozenset({"type", "call_id", "output", "id", "status", "name"})
_DONE = (None, "completed")
_SPEAKERS = ("user", "system", "developer")
_PLAIN_ROLES = ("user", "system", "assistant")
_CHAT_MESSAGE = frozenset({"role", "content", "name"})
_CHAT_OUTPUT = frozenset({"role", "content", "tool_call_id", "name"})


def to_messages(items: list[Item], style: ChatStyle = OPEN, lost: list[str] | None = None) -> list[ChatMessage]:
    """Convert items to chat messages."""
    if len(items) == 1 and style.reasoning != "think" and (only := plain_message(items[0])) is not None:
        return [only]
    conversion: Conversion | None = None
    messages: list[ChatMessage] = []
    turn: AssistantTurn | None = None
    last = len(items) - 1
    done = False  # the thought before this item already holds it
    for index, item in enumerate(items):
        if done:
            done = False
            continue
        if turn is None and item.get("type") == "reasoning" and style.reasoning == "reasoning_content":
            spoken = thinking_turn(items, index)
            if spoken is not None:
                messages.append(spoken)
                done = True
                continue
        plain = plain_message(item)  # the usual case takes the fast path
        if plain is not None:
            if plain["role"] != "assistant":
                if turn is not None:
                    messages += turn.finished()
                    turn = None
                messages.append(plain)
                continue
            alone = turn is None and (index == last or _ends_turn(items[index + 1]))
            if alone and (style.reasoning != "think" or plain["content"] is None):
                messages.append(plain)
                continue
        path = f"input[{index}]"
        conversion = conversion or Conversion("bad_request", "chat", lost)
        kind = kind_of(item)
        if is_assistant(kind, item):
            turn = turn or AssistantTurn(style, conversion)
            if turn.add(kind, item, path):
                messages += turn.finished()
                turn = None
            continue
        if kind not in ("message", "function_call_output"):
            conversion.lose(path, f"chat has no place for an item of type {kind:.60}")
            continue
        if turn is not None:
            messages += turn.finished()
            turn = None
        if item.get("status") is not None and item["status"] != "completed":
            conversion.lose(f"{path}.status")
        convert = _message_to_chat if kind == "message" else _output_to_chat
        messages.append(convert(item, path, style, conversion))
    if turn is not None:
        messages += turn.finished()
    return messages


def settled(items: list[Item]) -> int:
    """The number of items whose messages are the same whatever items follow: up to the last that is no assistant's."""
    for index in range(len(items) - 1, -1, -1):
        kind = kind_of(items[index])
        if kind in ("message", "function_call_output") and not is_assistant(kind, items[index]):
            return index + 1
    return 0


def from_messages(messages: Any, style: ChatStyle = OPEN, lost: list[str] | None = None) -> list[Item]:
    """Convert chat messages to items."""
    conversion = Conversion("bad_request", "Responses", lost)
    items: list[Item] = []
    tagged = style.reasoning == "think"
    for index, message in enumerate(conversion.objects(messages, "messages")):
        plain = _plain_item(message, tagged)  # the usual case takes the fast path
        if plain is not None:
            items.append(plain)
            continue
        path = f"messages[{index}]"
        role = message.get("role")
        if role == "assistant":
            items += turn_from_chat(message, path, style, conversion)
        elif role == "tool":
            items.append(_output_from_chat(message, path, conversion))
        else:
            items.append(_message_from_chat(message, path, conversion))
    return items


def items_of_chat(message: Any) -> list[Item]:
    """Convert one chat message to items."""
    plain = _plain_item(message, tagged=False) if isinstance(message, dict) else None
    return from_messages([message]) if plain is None else [plain]


def _plain_item(message: ChatMessage, tagged: bool) -> Item | None:
    """The item of a message that is one text and nothing else; None for any other message.

    With `tagged`, the text of an assistant may hold reasoning.
    """
    content, role, size = message.get("content"), message.get("role"), len(message)
    if content.__class__ is not str:
        return None
    if size == 2 and (role in _SPEAKERS or (role == "assistant" and not tagged)):
        return {"type": "message", "role": role, "content": content}
    if size == 3 and role == "tool" and message.get("tool_call_id").__class__ is str:
        return {"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}
    return None


def kind_of(item: Item) -> str:
    """The type of an item; a message may leave its type out."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item or "content" in item else "null"
    return kind if isinstance(kind, str) else "unknown"


def is_assistant(kind: str, item: Item) -> bool:
    """Whether an item belongs to an assistant turn."""
    return kind in RANKS and (kind != "message" or item.get("role", "assistant") == "assistant")


def _ends_turn(following: Item) -> bool:
    kind = following.get("type")
    return kind == "function_call_output" or not is_assistant(kind_of(following), following)


def plain_message(item: Item) -> ChatMessage | None:
    """The chat message of an item that holds one text, one call or one output, and nothing that could be lost.

    None for any other item.
    """
    get = item.get
    content = get("content")
    if len(item) == 2 and content.__class__ is str and get("role") in _PLAIN_ROLES:  # as most prompts are written
        return {"role": item["role"], "content": content}
    kind = get("type")
    if "status" in item and item["status"] not in _DONE:
        return None
    if kind == "function_call":
        call = plain_call(item)
        return None if call is None else {"role": "assistant", "content": None, "tool_calls": [call]}
    optional = ("id" in item) + ("status" in item)
    if kind == "function_call_output":
        call_id, output = get("call_id"), get("output")
        if len(item) == 3 + optional and call_id.__class__ is str and output.__class__ is str:
            return {"role": "tool", "tool_call_id": call_id, "content": output}
        return None
    role, typed = get("role"), "type" in item
    if (typed and kind != "message") or role not in _PLAIN_ROLES or len(item) != 2 + typed + optional:
        return None
    if content.__class__ is list and len(content) == 1 and role == "assistant":
        content = _plain_text(content[0])
    return {"role": role, "content": content} if content.__class__ is str else None


def _plain_text(part: Any) -> Any:
    """The text of a part that holds nothing else; None for any other part."""
    if part.__class__ is not dict or part.get("type") != "output_text" or part.get("annotations"):
        return None
    if len(part) != 2 + ("annotations" in part) + ("logprobs" in part) or part.get("logprobs"):
        return None
    return part.get("text")


def _plain_thought(item: Item) -> str | None:
    """The text of reasoning that is one summary and nothing else; None for any other reasoning."""
    summary = item.get("summary")
    if summary.__class__ is not list or len(summary) != 1 or ("status" in item and item["status"] not in _DONE):
        return None
    part = summary[0]
    if len(item) != 2 + ("id" in item) + ("status" in item) or part.__class__ is not dict or len(part) != 2:
        return None
    text = part.get("text")
    return text if text and text.__class__ is str and "type" in part else None


def thinking_turn(items: list[Item], index: int) -> ChatMessage | None:
    """The message of a thought and a plain text or call that ends its turn; None for any other turn."""
    thought, after = _plain_thought(items[index]), index + 1
    if thought is None or after == len(items) or (after + 1 < len(items) and not _ends_turn(items[after + 1])):
        return None
    plain = plain_message(items[after])
    if plain is None or plain["role"] != "assistant":
        return None
    if "tool_calls" in plain:
        calls = plain["tool_calls"]
        return {"role": "assistant", "content": None, "reasoning_content": thought, "tool_calls": calls}
    content = plain["content"]
    return {"role": "assistant", "content": content, "reasoning_content": thought} if content else None


def _message_to_chat(item: Item, path: str, style: ChatStyle, conversion: Conversion) -> ChatMessage:
    role = conversion.text(item["role"], f"{path}.role")
    if role in ("tool", "function"):
        raise conversion.refuse(path, "a function_call_output", f"a message of role {role}")
    if role == "developer" and not style.developer:
        role = "system"
        conversion.lose(f"{path}.role", "this chat server knows no developer: it became system")
    message = {"role": role, "content": content_to_chat(item.get("content"), f"{path}.content", conversion)}
    return _with_name(message, item, path, _MESSAGE, conversion)


def _output_to_chat(item: Item, path: str, style: ChatStyle, conversion: Conversion) -> ChatMessage:
    call_id = conversion.text(item.get("call_id"), f"{path}.call_id")
    output = item.get("output")
    content = output if isinstance(output, str) else content_to_chat(output, f"{path}.output", conversion)
    message = {"role": "tool", "tool_call_id": call_id, "content": content}
    return _with_name(message, item, path, _OUTPUT, conversion)


def _with_name(
    converted: ChatMessage, source: Item, path: str, known: frozenset[str], conversion: Conversion
) -> ChatMessage:
    conversion.leftovers(source, known, path)
    if source.get("name") is not None:
        converted["name"] = source["name"]
    return converted


def _message_from_chat(message: ChatMessage, path: str, conversion: Conversion) -> Item:
    role = conversion.text(message.get("role"), f"{path}.role")
    if role == "function":
        raise conversion.refuse(f"{path}.role", "one of system, developer, user, assistant and tool", role)
    content = content_from_chat(message.get("content"), f"{path}.content", conversion)
    return _with_name({"type": "message", "role": role, "content": content}, message, path, _CHAT_MESSAGE, conversion)


def _output_from_chat(message: ChatMessage, path: str, conversion: Conversion) -> Item:
    call_id = conversion.text(message.get("tool_call_id"), f"{path}.tool_call_id")
    content = message.get("content")
    output = "" if content is None else content_from_chat(content, f"{path}.content", conversion)
    item: Item = {"type": "function_call_output", "call_id": call_id, "output": output}
    return _with_name(item, message, path, _CHAT_OUTPUT, conversion)
