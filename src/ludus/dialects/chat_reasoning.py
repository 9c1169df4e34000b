"""Reasoning in chat. Chat has no standard place for it: servers use a text field, `reasoning_details` or tags.

A text field holds one text: several summaries are joined and `encrypted_content` is lost. `reasoning_details` holds
everything. Details that reasoning items cannot represent are kept on the item unchanged, because the server that
wrote them requires them back unchanged.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.conversion import TOKEN_FIELDS, Conversion, Item, has_content

OPENING, CLOSING = "<think>", "</think>"

_KNOWN = frozenset({"type", "id", "status", "summary", "content", "encrypted_content", *TOKEN_FIELDS})
_GAP = "\n\n"

#: A detail's type: the key of its value, the field of a reasoning item that holds it, and the type of its part there.
_DETAILS = {
    "reasoning.summary": ("summary", "summary", "summary_text"),
    "reasoning.text": ("text", "content", "reasoning_text"),
    "reasoning.encrypted": ("data", "encrypted_content", ""),
}
_ORDER = {"summary": 0, "content": 1, "encrypted_content": 2}


def summary(text: str) -> Item:
    """A reasoning item, as an input, with one summary text."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def readable(item: Item, path: str, conversion: Conversion) -> str | None:
    """The text of a reasoning item for a chat text field; None if it has no text. Everything else is listed as lost."""
    conversion.leftovers(item, _KNOWN, path)
    if has_content(item.get("encrypted_content")):
        conversion.lose(f"{path}.encrypted_content")
    text = one_text(item, path, conversion)
    if not text:
        conversion.lose(path, "there is no text in it")
    return text or None


def one_text(item: Item, path: str, conversion: Conversion) -> str | None:
    """The content of a reasoning item, or else its summary, as one text; None if it has neither."""
    content = _texts(item.get("content"), f"{path}.content", conversion)
    summaries = _texts(item.get("summary"), f"{path}.summary", conversion)
    if content and summaries:
        conversion.lose(f"{path}.summary", f"{conversion.target} has place for the reasoning or its summary, not both")
    texts = content or summaries
    if len(texts) > 1:
        conversion.lose(f"{path}.{'content' if content else 'summary'}", "its parts became one text")
    return _GAP.join(texts) if texts else None


def _texts(parts: Any, path: str, conversion: Conversion) -> list[str]:
    texts = []
    for index, part in enumerate(conversion.objects(parts, path)):
        texts.append(conversion.text(part.get("text"), f"{path}[{index}].text"))
        conversion.leftovers(part, {"type", "text"}, f"{path}[{index}]")
    return texts


def tagged(thought: str, closed: bool, content: str | list[Any] | None) -> str | list[Any]:
    """Prepend reasoning in think tags to chat content."""
    tag = f"{OPENING}{thought}{CLOSING if closed else ''}"
    if isinstance(content, list):
        return [{"type": "text", "text": tag}, *content]
    return tag + (content or "")


def split_thought(text: str) -> tuple[str | None, bool, str]:
    """Split a text into its leading tagged reasoning, whether the tag was closed, and the rest.

    A closing tag without an opening one counts too: some chat templates put the opening tag into the prompt.
    """
    start = text.lstrip()
    opened = start.startswith(OPENING)
    thought, closing, rest = (start[len(OPENING) :] if opened else text).partition(CLOSING)
    if not opened and not closing:
        return None, True, text
    return thought, bool(closing), rest


def to_details(item: Item, path: str, conversion: Conversion) -> list[dict[str, Any]]:
    """Convert a reasoning item to `reasoning_details`."""
    details = item.get("reasoning_details")
    if details is not None:
        return conversion.objects(details, f"{path}.reasoning_details")
    conversion.leftovers(item, _KNOWN, path)
    name = {"id": item["id"]} if item.get("id") is not None else {}
    details = []
    for kind, (key, field, _) in _DETAILS.items():
        value = item.get(field)
        texts = [value] if field == "encrypted_content" else _texts(value, f"{path}.{field}", conversion)
        details += [{"type": kind, key: text, **name} for text in texts if text is not None]
    return details


def from_details(details: Any, text_field: str | None, path: str, conversion: Conversion) -> list[Item]:
    """Convert `reasoning_details` to items; `text_field` is the reasoning text that the server sent beside them."""
    entries = conversion.objects(details, path)
    items = _rebuilt(entries)
    if items is None:
        text = _GAP.join(_detail_text(entry) for entry in entries if _detail_text(entry)) or text_field
        items = [{**(summary(text) if text else {"type": "reasoning", "summary": []}), "reasoning_details": entries}]
    return items


def _rebuilt(details: list[dict[str, Any]]) -> list[Item] | None:
    """Items that convert back to exactly these details; None if the details hold more than items can."""
    items: list[Item] = []
    last_order = 0
    for detail in details:
        kind = detail.get("type")
        if not isinstance(kind, str) or kind not in _DETAILS:
            return None
        key, field, part_type = _DETAILS[kind]
        name = detail.get("id")
        if not isinstance(detail.get(key), str) or len(detail) != 2 + (name is not None):
            return None
        last = items[-1] if items else None
        if last is None or last.get("id") != name or _ORDER[field] < last_order or "encrypted_content" in last:
            last = {"type": "reasoning", "summary": []}
            if name is not None:
                last["id"] = name
            items.append(last)
        last_order = _ORDER[field]
        if part_type:
            last.setdefault(field, []).append({"type": part_type, "text": detail[key]})
        else:
            last[field] = detail[key]
    return items


def _detail_text(detail: dict[str, Any]) -> str:
    for key in ("text", "summary"):
        if isinstance(detail.get(key), str):
            return str(detail[key])
    return ""
