"""Conversations of other tools as a prompt: chat messages, and the `from`/`value` turns of ShareGPT."""

from __future__ import annotations

from typing import Any

import orjson

from ludus.dialects.chat_items import from_messages
from ludus.dialects.chat_tools import tools_from_chat
from ludus.dialects.conversion import Conversion
from ludus.errors import Failure, UserError

Item = dict[str, Any]

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "assistant": "assistant",
}


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages, with `role` and `content` or with `from` and `value`."""
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def split_conversation(messages: list[Item], lost: list[str]) -> tuple[list[Item], str | None]:
    """The items before the model's last answer, and the text of that answer; None if the model did not speak last.

    What the Responses format has no place for is listed in `lost`.
    """
    chat = [_chat_message(message) for message in messages]
    answer = None
    if len(chat) > 1 and chat[-1].get("role") == "assistant" and isinstance(chat[-1].get("content"), str):
        answer = chat.pop()["content"]
    try:
        return [_without_type(item) for item in from_messages(chat, lost=lost)], answer
    except Failure as failure:
        raise UserError(failure.cause, "Fix the row or leave it out") from failure


def answer_text(field: str, messages: list[Item], lost: list[str]) -> str:
    """The text of the model's last message, for a right answer that is written as a list of messages."""
    last = _chat_message(messages[-1])
    content = last.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if last.get("role") != "assistant" or not isinstance(content, str):
        raise UserError(f"{field:.60} does not end with a text of the assistant", "Fix the row or leave it out")
    if len(messages) > 1:
        lost.append(f"{field} before its last message")
    return content


def flat_tools(tools: Any, lost: list[str]) -> list[Item]:
    """Tools in the form of the Responses API, which has no object `function` inside. They may be a JSON text."""
    try:
        entries = orjson.loads(tools) if isinstance(tools, str) else tools
        if isinstance(entries, list) and all(isinstance(entry, dict) and "name" in entry for entry in entries):
            return entries
        return tools_from_chat(entries, Conversion("bad_row", "a task", lost))
    except orjson.JSONDecodeError as error:
        raise UserError(f"tools is not JSON: {error.msg}", "Fix the row or leave it out") from error
    except Failure as failure:
        raise UserError(failure.cause, "Fix the row or leave it out") from failure


def _without_type(item: Item) -> Item:
    """An item as prompts are written: a message says so by its role."""
    return {key: value for key, value in item.items() if key != "type"} if item.get("type") == "message" else item


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or ("from" in value and "value" in value))


def _chat_message(message: Item) -> Item:
    if "from" in message and "role" not in message:
        role = _ROLES.get(str(message["from"]).lower())
        if role is None:
            cause = f"a turn comes from {message['from']!r:.40}"
            raise UserError(cause, f"Known: {', '.join(_ROLES)}. Fix the row or leave it out")
        return {"role": role, "content": message["value"]}
    return {key: value for key, value in message.items() if value is not None}  # Parquet has every key in every message
