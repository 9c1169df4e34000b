"""The state of a session in a form that can be compared: a digest for each attribute of `self` and of its objects.

Plain values, containers of them and SQLite databases have a digest. An attribute that holds anything else, such as a
lock or a connection, has none and is never compared. What all sessions share is no state of a session.
"""

from __future__ import annotations

import enum
import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from ludus.resources import Resources

#: Attributes that every session has. They are settings, or follow from the seed.
_GENERAL = {"config", "shared", "seed_known", "_seed", "_used_seed"}
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, date, datetime, time, timedelta, Decimal, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset)

#: How deep attributes of objects are compared by name, how deep values are read, and how large a value may be.
_NAMES, _DEPTH, _PARTS = 4, 20, 200_000


class _NotComparableError(Exception):
    """A value has no digest."""


def attributes_of(session: Resources) -> dict[str, str]:
    """The digests by name: `count` for `self.count`, `table.rows` for `self.table.rows`."""
    shared = session.shared
    skipped = {id(part) for part in (session.config, shared, *(value for _, value in _members(shared)))} - {id(None)}
    members = [(name, value) for name, value in _members(session) if name not in _GENERAL]
    return dict(_digests(members, skipped, _NAMES))


def _digests(members: Iterable[tuple[str, Any]], skipped: set[int], depth: int) -> Iterator[tuple[str, str]]:
    for name, value in members:
        if id(value) in skipped:
            continue
        if depth and _is_object(value):
            nested = _digests(_members(value), skipped, depth - 1)
            yield from ((f"{name}.{attribute}", digest) for attribute, digest in nested)
            continue
        try:
            parts: list[str] = []
            _add(value, parts, skipped, _DEPTH)
        except (_NotComparableError, sqlite3.Error):
            continue
        yield name, hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_object(value: Any) -> bool:
    """Whether a value is known by its attributes: an instance of an author's class."""
    if isinstance(value, (*_PLAIN, *_CONTAINERS, enum.Enum, PurePath, sqlite3.Connection, type)) or callable(value):
        return False
    return hasattr(value, "__dict__") or any(True for _ in _members(value))


def _members(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object, also those in `__slots__`."""
    members = dict(vars(value)) if hasattr(value, "__dict__") else {}
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                members[name] = getattr(value, name)
    return list(members.items())


def _add(value: Any, parts: list[str], skipped: set[int], depth: int) -> None:
    """Append the parts of a value. Equal values have equal parts, whatever the order of their keys."""
    if depth < 0 or len(parts) > _PARTS:
        raise _NotComparableError
    if id(value) in skipped:
        parts.append("shared")
    elif isinstance(value, enum.Enum | PurePath) or type(value) in _PLAIN:
        parts.append(repr(value))
    elif isinstance(value, dict):
        _add_sorted(list(value.items()), "dict", parts, skipped, depth)
    elif isinstance(value, set | frozenset):
        _add_sorted([(entry, None) for entry in value], "set", parts, skipped, depth)
    elif isinstance(value, list | tuple):
        parts.append(f"list {len(value)}")
        for entry in value:
            _add(entry, parts, skipped, depth - 1)
    elif isinstance(value, sqlite3.Connection):
        parts += ["sqlite", *value.iterdump()]
    elif _is_object(value):
        parts.append(type(value).__qualname__)
        _add(dict(_members(value)), parts, skipped, depth - 1)
    else:
        raise _NotComparableError


def _add_sorted(entries: list[tuple[Any, Any]], kind: str, parts: list[str], skipped: set[int], depth: int) -> None:
    parts.append(f"{kind} {len(entries)}")
    for key, entry in sorted(entries, key=lambda pair: repr(pair[0])):
        parts.append(repr(key))
        _add(entry, parts, skipped, depth - 1)
