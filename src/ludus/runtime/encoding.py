"""JSON out of the process: fast where it can be, and never an exception for what a tool or a verifier returned."""

from __future__ import annotations

import json
from typing import Any

import orjson
from orjson import OPT_SERIALIZE_NUMPY, dumps
from pydantic import BaseModel


def encode(value: Any) -> bytes:
    """Compact JSON. What JSON cannot hold (a set, a lone surrogate) is written as near to it as JSON allows."""
    try:
        return dumps(value, _default, OPT_SERIALIZE_NUMPY)
    except (TypeError, ValueError):
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def compact(data: bytes) -> bytes:
    """A copy for keeping: what orjson returns stays as large as the buffer it was written in, 4 KB at least."""
    return b"".join((data, b""))  # the cheapest copy of bytes there is: slices and sums with nothing are no copies


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)


def _plain(value: Any) -> Any:
    """The slow road: rebuild a value out of what the standard library's encoder takes."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, orjson.Fragment):
        return orjson.loads(orjson.dumps(value))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, int) and value.bit_length() > 1023:
        return hex(value)  # no parser would read it as a number, and Python refuses to write it as one
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return _plain(_default(value))
