"""The responses of one rollout that its program may read again or continue with `previous_response_id`.

OpenAI's servers keep responses unless a request says `store: false`. A program that relies on it sends only what is
new, so the items of the earlier responses must come first again.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import uuid4

from ludus.dialects.client_tools import function_items
from ludus.http.messages import Refusal
from ludus.response import Item

Body = dict[str, Any]

#: The most bytes of requests whose responses are kept, for each rollout. The oldest are dropped.
KEPT_BYTES = 16 << 20
#: Other things of a request that only OpenAI's servers have.
_ELSEWHERE = ("conversation", "prompt")


class _Stored(NamedTuple):
    answer: Body  # as the model gave it
    response: Body
    previous: str | None
    items: list[Item]  # of the request, without those of earlier responses
    size: int


class StoredResponses:
    """The stored responses of one rollout, by their ids."""

    def __init__(self) -> None:
        self._stored: dict[str, _Stored] = {}
        self._size = 0

    def get(self, response_id: str) -> Body | None:
        """A stored response."""
        stored = self._stored.get(response_id)
        return stored.response if stored is not None else None

    def continued(self, body: Body) -> Body:
        """The request with the items of the responses that it continues before its own."""
        for field in _ELSEWHERE:
            if body.get(field) is not None:
                raise Refusal(400, f"{field} is kept on OpenAI's servers only: send the items in `input`")
        previous = body.get("previous_response_id")
        if previous is None:
            return body
        rest = {key: value for key, value in body.items() if key != "previous_response_id"}
        return {**rest, "input": [*self._items_until(previous), *_items(body)]}

    def keep(self, body: Body, answer: Body, size: int) -> Body:
        """The response to a request of `size` bytes. It is kept, unless the request says otherwise."""
        same = self._stored.get(answer["id"])
        if same is not None and same.answer is answer:  # the answer to a retry
            return same.response
        previous, stores = body.get("previous_response_id"), body.get("store") is not False
        response_id = answer["id"] if same is None else f"resp_{uuid4().hex}"
        response = {**answer, "id": response_id, "previous_response_id": previous, "store": stores}
        if stores:
            self._stored[response_id] = _Stored(answer, response, previous, _items(body), size)
            self._size += size
            while self._size > KEPT_BYTES and len(self._stored) > 1:
                self._size -= self._stored.pop(next(iter(self._stored))).size
        return response

    def _items_until(self, response_id: Any) -> list[Item]:
        """The conversation up to the end of a stored response."""
        turns: list[list[Item]] = []
        following: Any = response_id
        while following is not None:
            stored = self._stored.get(following) if isinstance(following, str) else None
            if stored is None:
                cause = f"no response {str(following)[:100]!r} is stored in this rollout"
                raise Refusal(404, f"previous_response_id: {cause}", code="previous_response_not_found")
            turns += [function_items(stored.response["output"]), stored.items]
            following = stored.previous
        return [item for turn in reversed(turns) for item in turn]


def refuse_elsewhere(items: list[Item]) -> None:
    """Refuse what the model's server would fetch or look up: a policy could reach other hosts and rollouts with it."""
    for item in items:
        if item.get("type") == "item_reference":
            raise Refusal(400, "an item_reference names what only OpenAI's servers keep: send the item itself")
        contents = [content for key in ("content", "output") if isinstance(content := item.get(key), list | dict)]
        parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
        for key, value in [entry for part in parts if isinstance(part, dict) for entry in part.items()]:
            url = value.get("url") if isinstance(value, dict) else value
            if value and (key == "file_id" or (key.endswith("_url") and not str(url).startswith("data:"))):
                raise Refusal(400, f"{key} names what is elsewhere, {str(url)[:80]!r}: send it as a data URL")


def _items(body: Body) -> list[Item]:
    content = body.get("input")
    if isinstance(content, str):
        return [{"type": "message", "role": "user", "content": content}]
    if not isinstance(content, list):
        raise Refusal.field(["input"], "value_error", "input must be a string or a list of items")
    return content
