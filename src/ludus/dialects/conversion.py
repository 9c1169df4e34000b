"""What every converter between dialects guarantees.

A converter lists everything that the target dialect cannot hold in `lost`, each entry a path and a reason. Malformed
input raises a `Failure` that names the path. A result shares objects with its input, so treat both as read-only.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import orjson

from ludus.errors import Failure
from ludus.runtime.encoding import encode

#: An item of the Responses API, as plain JSON.
Item = dict[str, Any]

#: The exact tokens of a model call, on its last output item or on its chat message. None comes without the others.
TOKEN_IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
#: All fields that trainers read there.
TOKEN_FIELDS = (*TOKEN_IDS, "routed_experts")

_TOKEN_FIELDS = frozenset(TOKEN_FIELDS)
_LARGEST = 2**53  # JSON numbers are exact up to here


class Conversion:
    """The state of one conversion: the list of losses, and the failure kind of malformed input."""

    __slots__ = ("kind", "lost", "target")

    def __init__(self, kind: str, target: str, lost: list[str] | None) -> None:
        self.kind = kind
        self.target = target
        self.lost = [] if lost is None else lost

    def lose(self, path: str, why: str = "") -> None:
        """List a value that the target dialect cannot hold."""
        self.lost.append(f"{path}: {why or f'{self.target} has no place for it'}")

    def leftovers(self, fields: dict[str, Any], known: Set[str], path: str) -> None:
        """List every unknown field as lost, except null and empty ones."""
        if fields.keys() <= known:
            return
        for key, value in fields.items():
            if key not in known and has_content(value):
                self.lose(f"{path}.{key!s:.60}")

    def refuse(self, path: str, wanted: str, value: Any) -> Failure:
        """The failure to raise for a malformed value. Its text is short even if the value is large."""
        return Failure(self.kind, f"{path} must be {wanted}, not {_described(value)}")

    def text(self, value: Any, path: str) -> str:
        """Return a string, or raise the failure."""
        if isinstance(value, str):
            return value
        raise self.refuse(path, "text", value)

    def optional_text(self, value: Any, path: str) -> str | None:
        """Return a string or None, or raise the failure."""
        return None if value is None else self.text(value, path)

    def object(self, value: Any, path: str) -> dict[str, Any]:
        """Return a JSON object, or raise the failure."""
        if isinstance(value, dict):
            return value
        raise self.refuse(path, "an object", value)

    def optional_object(self, value: Any, path: str) -> dict[str, Any]:
        """Return a JSON object (an empty one for null), or raise the failure."""
        return {} if value is None else self.object(value, path)

    def objects(self, value: Any, path: str) -> list[dict[str, Any]]:
        """Return a list of JSON objects (an empty one for null), or raise the failure."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(path, "a list of objects", value)
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self.refuse(f"{path}[{index}]", "an object", entry)
        return value

    def count(self, value: Any, path: str) -> int:
        """Return a token count (0 for null), or raise the failure."""
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return value
        if isinstance(value, float) and 0 <= value <= _LARGEST and value.is_integer():
            return int(value)
        raise self.refuse(path, "a count", value)

    def json_text(self, value: Any, path: str) -> str:
        """Return the arguments of a call as text. Some servers send an object, or null for no arguments."""
        if isinstance(value, str):
            return value
        if value is not None and not isinstance(value, dict):
            raise self.refuse(path, "text", value)
        try:
            return encode(value or {}).decode()
        except RecursionError as error:
            raise self.refuse(path, "text", value) from error

    def call(self, item: Item, path: str) -> tuple[str, str, dict[str, Any]]:
        """The id, the name and the arguments of a function call, for dialects that hold arguments as an object."""
        arguments = self.text(item.get("arguments"), f"{path}.arguments")
        try:
            parsed = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            self.lose(f"{path}.arguments", "they are not a JSON object: they became the text of one argument")
            parsed = {"arguments": arguments}
        return self.text(item.get("call_id"), f"{path}.call_id"), self.text(item.get("name"), path), parsed


def tokens_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The token fields of an item or a message."""
    if _TOKEN_FIELDS.isdisjoint(fields):  # fast path: called for every item, most have none
        return {}
    return {key: fields[key] for key in TOKEN_FIELDS if fields.get(key) is not None}


def seconds(value: Any) -> int:
    """A Unix time in whole seconds; 0 if the value is not a number."""
    return int(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0


def has_content(value: Any) -> bool:
    """Whether a value is anything but null, an empty text, an empty list or an empty object."""
    return value is not None and not (isinstance(value, (str, list, dict)) and not value)


def _described(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (str, bool, int, float)):
        shown = value[:40] if isinstance(value, str) else str(value) if abs(value) < _LARGEST else "a huge number"
        return f"{shown!r}" if isinstance(value, str) else shown
    return {"dict": "an object", "list": "a list"}.get(type(value).__name__, type(value).__name__)
