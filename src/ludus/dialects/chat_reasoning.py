"""Reasoning in chat, which has no standard place: a field, a list of details, or tags in the text.

A text field holds one text, so what several summaries said is joined, and what only its author can read
(`encrypted_content`) is lost. `reasoning_details` holds all of it. A list of details that our items could not rebuild
is kept as it came, on the item, because the server that wrote it wants it back unchanged.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.conversion import TOKEN_FIELDS, Conversion, says
from ludus.response import Item

OPENING, CLOSING = "<think>", "</think>"

_KNOWN = frozenset({"type", "id", "status", "summary", "content", "encrypted_content", *TOKEN_FIELDS})
_GAP = "\n\n"

#: A detail's type, the key its value has there, and the field of a reasoning item that it belongs to.
_DETAILS = {
    "reasoning.summary": ("summary", "summary", "summary_text"),
    "reasoning.text": ("text", "content", "reasoning_text"),
    "reasoning.encrypted": ("data", "encrypted_content", ""),
}
_ORDER = {"summary": 0, "content": 1, "encrypted_content": 2}


def summary(text: str) -> Item:
    """A reasoning item, as an input, that holds one text."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def readable(item: Item, path: str, conversion: Conversion) -> str | None:
    """The text of a reasoning item for a field that holds one text; None where there is nothing to read."""
    conversion.leftovers(item, _KNOWN, path)
    if says(item.get("encrypted_content")):
        conversion.lose(f"{path}.encrypted_content")
    text = one_text(item, path, conversion)
    if not text:
        conversion.lose(path, "there is no text in it")
    return text or None


def one_text(item: Item, path: str, conversion: Conversion) -> str | None:
    """What a reasoning item says, as one text; None where it holds none."""
    raw = _texts(item.get("content"), f"{path}.content", conversion)
    told = _texts(item.get("summary"), f"{path}.summary", conversion)
    if raw and told:
        conversion.lose(f"{path}.summary", f"{conversion.target} has place for the reasoning or its summary, not both")
    texts = raw or told
    if len(texts) > 1:
        conversion.lose(f"{path}.{'content' if raw else 'summary'}", "its parts became one text")
    return _GAP.join(texts) if texts else None


def _texts(parts: Any, path: str, conversion: Conversion) -> list[str]:
    texts = []
    for index, part in enumerate(conversion.objects(parts, path)):
        texts.append(conversion.text(part.get("text"), f"{path}[{index}].text"))
        conversion.leftovers(part, {"type", "text"}, f"{path}[{index}]")
    return texts


def tagged(thought: str, closed: bool, content: str | list[Any] | None) -> str | list[Any]:
    """Content that starts with tagged reasoning."""
    tag = f"{OPENING}{thought}{CLOSING if closed else ''}"
    if isinstance(content, list):
        return [{"type": "text", "text": tag}, *content]
    return tag + (content or "")


def split_thought(text: str) -> tuple[str | None, bool, str]:
    """The tagged reasoning that a text starts with, whether its tag was closed, and the rest.

    A text that only closes the tag counts too: some templates open it in the prompt.
    """
    start = text.lstrip()
    opened = start.startswith(OPENING)
    thought, closing, rest = (start[len(OPENING) :] if opened else text).partition(CLOSING)
    if not opened and not closing:
        return None, True, text
    return thought, bool(closing), rest


def to_details(item: Item, path: str, conversion: Conversion) -> list[dict[str, Any]]:
    """A reasoning item as `reasoning_details`."""
    kept = item.get("reasoning_details")
    if kept is not None:
        return conversion.objects(kept, f"{path}.reasoning_details")
    conversion.leftovers(item, _KNOWN, path)
    name = {"id": item["id"]} if item.get("id") is not None else {}
    details = []
    for kind, (key, field, _) in _DETAILS.items():
        value = item.get(field)
        texts = [value] if field == "encrypted_content" else _texts(value, f"{path}.{field}", conversion)
        details += [{"type": kind, key: text, **name} for text in texts if text is not None]
    return details


def from_details(details: Any, said: str | None, path: str, conversion: Conversion) -> list[Item]:
    """Reasoning items out of `reasoning_details`; `said` is the text that the server gave beside them."""
    entries = conversion.objects(details, path)
    items = _rebuilt(entries)
    if items is None:
        text = _GAP.join(_words(entry) for entry in entries if _words(entry)) or said
        items = [{**(summary(text) if text else {"type": "reasoning", "summary": []}), "reasoning_details": entries}]
    return items


def _rebuilt(details: list[dict[str, Any]]) -> list[Item] | None:
    """The items that these details were made of; None where they hold something that items could not give back."""
    items: list[Item] = []
    reached = 0
    for detail in details:
        kind = detail.get("type")
        if not isinstance(kind, str) or kind not in _DETAILS:
            return None
        key, field, part_type = _DETAILS[kind]
        name = detail.get("id")
        if not isinstance(detail.get(key), str) or len(detail) != 2 + (name is not None):
            return None
        last = items[-1] if items else None
        if last is None or last.get("id") != name or _ORDER[field] < reached or "encrypted_content" in last:
            last = {"type": "reasoning", "summary": []}
            if name is not None:
                last["id"] = name
            items.append(last)
        reached = _ORDER[field]
        if part_type:
            last.setdefault(field, []).append({"type": part_type, "text": detail[key]})
        else:
            last[field] = detail[key]
    return items


def _words(detail: dict[str, Any]) -> str:
    for key in ("text", "summary"):
        if isinstance(detail.get(key), str):
            return str(detail[key])
    return ""
