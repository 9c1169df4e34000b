"""Converters from Anthropic content blocks to Responses items and parts."""

from __future__ import annotations

import base64
from typing import Any

from ludus.dialects.chat_parts import Part, add_parts, joined, joined_turn
from ludus.dialects.chat_reasoning import summary
from ludus.dialects.conversion import Conversion, Item, has_content

Block = dict[str, Any]

_TEXT = frozenset({"type", "text"})
_RESULT = frozenset({"type", "tool_use_id", "content", "is_error"})
_USE = frozenset({"type", "id", "name", "input"})
_THINKING = frozenset({"type", "thinking", "signature"})
_SOURCED = frozenset({"type", "source", "title"})
_ARTICLES = {"image": "an image", "document": "a document"}


def user_items(content: Any, role: str, path: str, conversion: Conversion) -> list[Item]:
    """Convert the content of a user (or system) message to messages and tool outputs, in order."""
    if isinstance(content, str):
        return [{"type": "message", "role": role, "content": content}]
    items: list[Item] = []
    for index, block in enumerate(_blocks(content, path, conversion)):
        here = f"{path}[{index}]"
        if block.get("type") == "tool_result":
            items.append(_output(block, here, conversion))
        else:
            add_parts(items, role, _parts(block, here, conversion))
    return joined_turn(items, role, "input_text")


def assistant_items(content: Any, path: str, conversion: Conversion) -> list[Item]:
    """Convert the content of an assistant message to reasoning, messages and calls, in order."""
    if isinstance(content, str):
        return [{"type": "message", "role": "assistant", "content": content}]
    items: list[Item] = []
    for index, block in enumerate(_blocks(content, path, conversion)):
        here, kind = f"{path}[{index}]", block.get("type")
        if kind == "text":
            text = {"type": "output_text", "text": conversion.text(block.get("text"), f"{here}.text")}
            conversion.leftovers(block, _TEXT, here)
            add_parts(items, "assistant", [text])
        elif kind in ("thinking", "redacted_thinking"):
            items.append(_reasoning(block, here, conversion))
        elif kind == "tool_use":
            items.append(_call(block, here, conversion))
        else:
            conversion.lose(here, f"Responses has no place for a block of type {kind!s:.60}")
    return joined_turn(items, "assistant", "output_text")


def _parts(block: Block, path: str, conversion: Conversion) -> list[Part]:
    """Convert a block of a user message to parts; an empty list, listed as lost, if Responses cannot hold it."""
    kind = block.get("type")
    if kind == "text":
        conversion.leftovers(block, _TEXT, path)
        return [{"type": "input_text", "text": conversion.text(block.get("text"), f"{path}.text")}]
    if kind not in ("image", "document"):
        conversion.lose(path, f"Responses has no place for a block of type {kind!s:.60}")
        return []
    return _file_parts(block, kind, path, conversion)


def parts_content(content: Any, path: str, conversion: Conversion) -> str | list[Part]:
    """Convert a list of blocks to the content of a user message or a tool output."""
    blocks = enumerate(_blocks(content, path, conversion))
    parts = [part for index, block in blocks for part in _parts(block, f"{path}[{index}]", conversion)]
    return joined(parts, "input_text")


def _blocks(content: Any, path: str, conversion: Conversion) -> list[Block]:
    if not isinstance(content, list):
        raise conversion.refuse(path, "text or a list of blocks", content)
    return conversion.objects(content, path)


def _file_parts(block: Block, kind: str, path: str, conversion: Conversion) -> list[Part]:
    """Convert an image or a document."""
    source = conversion.object(block.get("source"), f"{path}.source")
    conversion.leftovers(block, _SOURCED, path)
    place, is_image = source.get("type"), kind == "image"

    def text(key: str) -> str:
        return conversion.text(source.get(key), f"{path}.source.{key}")

    if place == "base64":
        part = {"image_url" if is_image else "file_data": f"data:{text('media_type')};base64,{text('data')}"}
    elif place == "text" and not is_image:
        data = base64.b64encode(text("data").encode("utf-8", "replace")).decode()
        part = {"file_data": f"data:text/plain;base64,{data}"}
    elif place == "url":
        part = {"image_url" if is_image else "file_url": text("url")}
    elif place == "file":
        part = {"file_id": text("file_id")}
    else:
        conversion.lose(path, f"Responses has no place for {_ARTICLES[kind]} from {place!s:.60}")
        return []
    if not is_image and block.get("title") is not None:
        part["filename"] = block["title"]
    return [{"type": "input_image" if is_image else "input_file", **part}]


def _output(block: Block, path: str, conversion: Conversion) -> Item:
    conversion.leftovers(block, _RESULT, path)
    if block.get("is_error"):
        conversion.lose(f"{path}.is_error")
    content = block.get("content")
    output = "" if content is None else content
    if not isinstance(output, str):
        output = parts_content(output, f"{path}.content", conversion)
    call_id = conversion.text(block.get("tool_use_id"), f"{path}.tool_use_id")
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _reasoning(block: Block, path: str, conversion: Conversion) -> Item:
    """Convert thinking to reasoning; signatures and redacted thinking become `encrypted_content`."""
    if block["type"] == "redacted_thinking":
        conversion.leftovers(block, {"type", "data"}, path)
        encrypted = conversion.text(block.get("data"), f"{path}.data")
        return {"type": "reasoning", "summary": [], "encrypted_content": encrypted}
    conversion.leftovers(block, _THINKING, path)
    item = summary(conversion.text(block.get("thinking"), f"{path}.thinking"))
    signature = conversion.optional_text(block.get("signature"), f"{path}.signature")
    if has_content(signature):
        item["encrypted_content"] = signature
    return item


def _call(block: Block, path: str, conversion: Conversion) -> Item:
    conversion.leftovers(block, _USE, path)
    return {
        "type": "function_call",
        "call_id": conversion.text(block.get("id"), f"{path}.id"),
        "name": conversion.text(block.get("name"), f"{path}.name"),
        "arguments": conversion.json_text(block.get("input"), f"{path}.input"),
    }
