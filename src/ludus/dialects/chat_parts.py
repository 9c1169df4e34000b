"""Converters for content parts (text, images, files, audio) between Responses items and chat messages.

Content of a single plain text is written as a string, which every chat server accepts. A part of an unknown type (a
video, for example) passes through unchanged: both dialects allow servers to add part types.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ludus.dialects.conversion import Conversion, Item

Part = dict[str, Any]

TEXTS = ("input_text", "output_text", "text")

_TEXT = frozenset({"type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"})
_IMAGE = frozenset({"type", "image_url", "detail", "prompt_cache_breakpoint"})
_FILE = frozenset({"type", "file_data", "file_id", "filename", "prompt_cache_breakpoint"})
_FILE_FIELDS = ("file_data", "file_id", "filename")
_CHAT_TEXT = frozenset({"type", "text", "prompt_cache_breakpoint"})
_CHAT_IMAGE = frozenset({"type", "image_url", "prompt_cache_breakpoint"})
_CHAT_FILE = frozenset({"type", "file", "prompt_cache_breakpoint"})


def content_to_chat(content: Any, path: str, conversion: Conversion) -> str | list[Part]:
    """Convert the content of a message, or the output of a call, to chat content."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise conversion.refuse(path, "text or a list of parts", content)
    parts = [
        converted
        for index, part in enumerate(content)
        if (converted := part_to_chat(part, f"{path}[{index}]", conversion)) is not None
    ]
    return joined(parts)


def joined(parts: list[Part], text: str = "text") -> str | list[Part]:
    """Content as a string if it is a single text part of type `text` and nothing else, else the parts."""
    if len(parts) == 1 and parts[0].get("type") == text and len(parts[0]) == 2:
        return str(parts[0]["text"])
    return parts


def add_parts(items: list[Item], role: str, parts: list[Part]) -> None:
    """Add parts to the message at the end of a turn, or to a new one after a call, a result or a thought."""
    if not items or items[-1]["type"] != "message":
        items.append({"type": "message", "role": role, "content": []})
    items[-1]["content"] += parts


def joined_turn(items: list[Item], role: str, text: str) -> list[Item]:
    """The items of a turn with the parts of each message `joined`; an empty message if there are none."""
    for item in items:
        if item["type"] == "message":
            item["content"] = joined(item["content"], text)
    return items or [{"type": "message", "role": role, "content": ""}]


def part_to_chat(part: Any, path: str, conversion: Conversion) -> Part | None:
    """Convert one part to chat; None, listed as lost, if chat cannot hold it."""
    kind = conversion.object(part, path).get("type")
    if kind in TEXTS:
        text = {"type": "text", "text": conversion.text(part.get("text"), f"{path}.text")}
        for key in ("annotations", "logprobs"):
            if part.get(key):
                conversion.lose(f"{path}.{key}")
        return _with_breakpoint(text, part, _TEXT, path, conversion)
    if kind == "input_image":
        return _image_to_chat(part, path, conversion)
    if kind == "input_file":
        return _file_to_chat(part, path, conversion)
    return dict(part)


def _image_to_chat(part: Part, path: str, conversion: Conversion) -> Part | None:
    url = part.get("image_url")
    if url is None:
        conversion.lose(path, "chat takes an image by URL only")
        return None
    image = {"url": conversion.text(url, f"{path}.image_url")}
    if part.get("detail") is not None:
        image["detail"] = part["detail"]
    return _with_breakpoint({"type": "image_url", "image_url": image}, part, _IMAGE, path, conversion)


def _file_to_chat(part: Part, path: str, conversion: Conversion) -> Part | None:
    if part.get("file_data") is None and part.get("file_id") is None:
        conversion.lose(path, "chat takes a file by its data or its id only")
        return None
    file = {key: part[key] for key in _FILE_FIELDS if part.get(key) is not None}
    return _with_breakpoint({"type": "file", "file": file}, part, _FILE, path, conversion)


def _with_breakpoint(converted: Part, source: Part, known: Set[str], path: str, conversion: Conversion) -> Part:
    conversion.leftovers(source, known, path)
    if source.get("prompt_cache_breakpoint") is not None:
        converted["prompt_cache_breakpoint"] = source["prompt_cache_breakpoint"]
    return converted


def content_from_chat(content: Any, path: str, conversion: Conversion, text: str = "input_text") -> str | list[Part]:
    """Convert chat content to the content of an item; `text` is the type of its text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise conversion.refuse(path, "text or a list of parts", content)
    return joined(
        [part_from_chat(part, f"{path}[{index}]", conversion, text) for index, part in enumerate(content)], text
    )


def part_from_chat(part: Any, path: str, conversion: Conversion, text: str) -> Part:
    """Convert one chat part to a part of an item."""
    kind = conversion.object(part, path).get("type")
    if kind == "text":
        converted: Part = {"type": text, "text": conversion.text(part.get("text"), f"{path}.text")}
        return _with_breakpoint(converted, part, _CHAT_TEXT, path, conversion)
    if kind == "image_url":
        return _image_from_chat(part, path, conversion)
    if kind == "file":
        file = conversion.object(part.get("file"), f"{path}.file")
        conversion.leftovers(file, frozenset(_FILE_FIELDS), f"{path}.file")
        converted = {"type": "input_file", **{key: file[key] for key in _FILE_FIELDS if file.get(key) is not None}}
        return _with_breakpoint(converted, part, _CHAT_FILE, path, conversion)
    return dict(part)


def _image_from_chat(part: Part, path: str, conversion: Conversion) -> Part:
    image = part.get("image_url")
    if isinstance(image, str):  # not in the standard, but many clients send it
        image = {"url": image}
    image = conversion.object(image, f"{path}.image_url")
    conversion.leftovers(image, frozenset({"url", "detail"}), f"{path}.image_url")
    converted: Part = {"type": "input_image", "image_url": conversion.text(image.get("url"), f"{path}.image_url.url")}
    if image.get("detail") is not None:
        converted["detail"] = image["detail"]
    return _with_breakpoint(converted, part, _CHAT_IMAGE, path, conversion)
