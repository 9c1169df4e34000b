"""What every converter between dialects promises.

A converter never drops anything in silence: what the target dialect has no place for is listed, each entry a path and a
reason. It never crashes on what others wrote: a value of the wrong shape is a `Failure` that names the path. Results
share their parts with what they were made of, so treat both as read-only.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ludus.errors import Failure
from ludus.runtime.encoding import encode

#: What trainers read of a model call. It sits on the call's last output item, or on the chat message that it became.
TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")

_TOKEN_FIELDS = frozenset(TOKEN_FIELDS)
_LARGEST = 2**53


class Conversion:
    """One conversion under way: where it notes what it loses, and the kind of failure that bad input is."""

    __slots__ = ("kind", "lost", "target")

    def __init__(self, kind: str, target: str, lost: list[str] | None) -> None:
        self.kind = kind
        self.target = target
        self.lost = [] if lost is None else lost

    def lose(self, path: str, why: str = "") -> None:
        """Note that something has no place in the target."""
        self.lost.append(f"{path}: {why or f'{self.target} has no place for it'}")

    def leftovers(self, given: dict[str, Any], known: Set[str], path: str) -> None:
        """Note every field that is not known. One that is null or empty says nothing, so nothing is lost with it."""
        if given.keys() <= known:
            return
        for key, value in given.items():
            if key not in known and says(value):
                self.lose(f"{path}.{key!s:.60}")

    def refuse(self, path: str, wanted: str, value: Any) -> Failure:
        """The failure to raise for a value that cannot be converted. Its text stays short whatever the value."""
        return Failure(self.kind, f"{path} must be {wanted}, not {_named(value)}")

    def text(self, value: Any, path: str) -> str:
        """A string, or a failure."""
        if isinstance(value, str):
            return value
        raise self.refuse(path, "text", value)

    def optional_text(self, value: Any, path: str) -> str | None:
        """A string or nothing, or a failure."""
        return None if value is None else self.text(value, path)

    def object(self, value: Any, path: str) -> dict[str, Any]:
        """A JSON object, or a failure."""
        if isinstance(value, dict):
            return value
        raise self.refuse(path, "an object", value)

    def optional_object(self, value: Any, path: str) -> dict[str, Any]:
        """A JSON object, an empty one in place of null, or a failure."""
        return {} if value is None else self.object(value, path)

    def objects(self, value: Any, path: str) -> list[dict[str, Any]]:
        """A list of JSON objects (none in place of null), or a failure."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(path, "a list of objects", value)
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self.refuse(f"{path}[{index}]", "an object", entry)
        return value

    def count(self, value: Any, path: str) -> int:
        """A count of tokens (0 in place of null), or a failure."""
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return value
        if isinstance(value, float) and 0 <= value <= _LARGEST and value.is_integer():
            return int(value)
        raise self.refuse(path, "a count", value)

    def json_text(self, value: Any, path: str) -> str:
        """The arguments of a call, as text. Some servers send the object itself, or nothing for none."""
        if isinstance(value, str):
            return value
        if value is not None and not isinstance(value, dict):
            raise self.refuse(path, "text", value)
        try:
            return encode(value or {}).decode()
        except RecursionError as error:
            raise self.refuse(path, "text", value) from error


def tokens_of(given: dict[str, Any]) -> dict[str, Any]:
    """The token fields of an item or a message."""
    if _TOKEN_FIELDS.isdisjoint(given):  # the usual case, and asked for every item
        return {}
    return {key: given[key] for key in TOKEN_FIELDS if given.get(key) is not None}


def seconds(value: Any) -> int:
    """A point in time as a whole number; 0 for what is none."""
    return int(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0


def says(value: Any) -> bool:
    """Whether a field says anything: null, empty text, an empty list and an empty object do not."""
    return value is not None and not (isinstance(value, (str, list, dict)) and not value)


def _named(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (str, bool, int, float)):
        shown = value[:40] if isinstance(value, str) else str(value) if abs(value) < _LARGEST else "a huge number"
        return f"{shown!r}" if isinstance(value, str) else shown
    return {"dict": "an object", "list": "a list"}.get(type(value).__name__, type(value).__name__)
