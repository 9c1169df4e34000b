"""Where the conversation stands in a request of each dialect, and how its messages become items one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ludus.dialects.chat_items import items_of_chat
from ludus.dialects.conversion import Item
from ludus.dialects.errors import Dialect
from ludus.dialects.gemini import turn_reader
from ludus.dialects.messages import items_of_message
from ludus.errors import Failure

Reader = Callable[[Any], list[Item]]


class History(NamedTuple):
    """The conversation in a request.

    `reader` makes a function that converts one message after another. If it `rewinds`, a message becomes the same items
    whatever messages were read before.
    """

    field: str
    reader: Callable[[], Reader]
    rewinds: bool = True


def _as_it_is(item: Any) -> list[Item]:
    if not isinstance(item, dict):
        raise Failure("bad_request", "input must be a list of objects")
    return [item]


HISTORIES: dict[Dialect, History] = {
    "responses": History("input", lambda: _as_it_is),
    "chat": History("messages", lambda: items_of_chat),
    "messages": History("messages", lambda: items_of_message),
    "gemini": History("contents", turn_reader, rewinds=False),
}
