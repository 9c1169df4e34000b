"""The chat request of a conversation that grows: each message, and the tools, are converted and encoded once."""

from __future__ import annotations

from typing import Any, NamedTuple

from orjson import Fragment

from ludus.dialects.chat import ChatStyle, to_chat, to_messages
from ludus.dialects.chat_items import settled
from ludus.dialects.conversion import Item
from ludus.errors import Failure
from ludus.response import Items
from ludus.runtime.encoding import compact, encode


class _ChatView(NamedTuple):
    """What the first `items` of a conversation are in chat, and what they lost."""

    items: int = 0
    messages: tuple[Fragment, ...] = ()
    lost: tuple[str, ...] = ()


class _ChatFields(NamedTuple):
    """What parameters are in chat: the fields of a request beside its messages, and the messages of instructions."""

    params: dict[str, Any]
    style: ChatStyle
    fields: dict[str, Any]
    instructions: list[Any]
    lost: list[str]


def chat_body(items: Items, params: dict[str, Any], style: ChatStyle, lost: list[str]) -> dict[str, Any]:
    """The body of a chat request. Parameters that the conversation had before are not converted again."""
    known: _ChatFields | None = items.views.get(_ChatFields)
    if known is None or known.params != params or known.style is not style:
        lost_fields: list[str] = []
        fields = to_chat([], params, style=style, lost=lost_fields)
        instructions = fields.pop("messages")
        if "tools" in fields:
            fields["tools"] = Fragment(compact(encode(fields["tools"])))
        known = items.views[_ChatFields] = _ChatFields({**params}, style, fields, instructions, lost_fields)
    lost += known.lost
    return {**known.fields, "messages": [*known.instructions, *chat_messages(items, style, lost)]}


def chat_messages(items: list[Item], style: ChatStyle, lost: list[str]) -> list[Any]:
    """The messages of a conversation. Those that no later item can change are kept encoded in `Items.views`."""
    if not isinstance(items, Items):
        return list(to_messages(items, style, lost))
    view: _ChatView = items.views.get(style) or _ChatView()
    added = items[view.items :]
    stable = settled(added)
    lost_now: list[str] = []
    try:
        view = _extended(view, added[:stable], style)
        unsettled = to_messages(added[stable:], style, lost_now)
    except Failure:
        to_messages(items, style)  # the same failure, with the place in the whole conversation
        raise
    items.views[style] = view
    lost += [*view.lost, *lost_now]
    return [*view.messages, *unsettled]


def _extended(view: _ChatView, items: list[Item], style: ChatStyle) -> _ChatView:
    if not items:
        return view
    lost: list[str] = []
    encoded = [Fragment(compact(encode(message))) for message in to_messages(items, style, lost)]
    return _ChatView(view.items + len(items), (*view.messages, *encoded), (*view.lost, *lost))
