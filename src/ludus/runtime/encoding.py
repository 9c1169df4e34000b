"""JSON encoding: fast for ordinary values, and without exceptions for whatever a tool or a verifier returns."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
from orjson import OPT_SERIALIZE_NUMPY, dumps

_NO_NUMBER = re.compile("-?(NaN|Infinity)")


def encode(value: Any) -> bytes:
    """Compact JSON. Values that JSON lacks are approximated: a set becomes a list, a lone surrogate a `?`."""
    try:
        return dumps(value, _default, OPT_SERIALIZE_NUMPY)
    except (TypeError, ValueError):
        return json.dumps(_simplified(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


#: Every byte of a line as `0` (a digit), `.`, or `x` (any other byte). The digits of a fraction follow `.`.
_DIGIT_OR_DOT = bytes(48 if 48 <= byte <= 57 else 46 if byte == 46 else 120 for byte in range(256))
_LONG_INTEGER = b"x" + b"0" * 19


def may_have_long_integer(line: bytes) -> bool:
    """Whether a line has 19 or more digits in a row: orjson may round such an integer."""
    return _LONG_INTEGER in line.translate(_DIGIT_OR_DOT)


def json_error(error: json.JSONDecodeError) -> str:
    """What is wrong with a line of JSON, and in which column; the caller knows the line's number."""
    if error.msg.startswith("str is not valid UTF-8"):
        return "not JSON: the text is not UTF-8"
    number = _NO_NUMBER.match(error.doc, error.pos) if isinstance(error.doc, str) else None
    if number is not None:
        return f"not JSON: {number[0]} at column {error.pos + 1} is no number of JSON, use null"
    what = "a lone surrogate" if "surrogate in string" in error.msg else error.msg.partition(": line ")[0]
    return f"not JSON: {what} at column {error.pos + 1}"


def compact(data: bytes) -> bytes:
    """A copy without spare memory: bytes from orjson keep the buffer they were written in, at least 4 KB."""
    return b"".join((data, b""))  # the cheapest copy of bytes: `data[:]` and `data + b""` do not copy


def _default(value: Any) -> Any:
    if hasattr(value.__class__, "model_dump"):  # a model of pydantic, which takes long to import
        return value.model_dump(mode="json")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)


def _simplified(value: Any) -> Any:
    """The value rebuilt from types that the standard library can encode: slow, for values that orjson refuses."""
    if isinstance(value, dict):
        return {str(key): _simplified(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_simplified(item) for item in value]
    if isinstance(value, orjson.Fragment):
        return orjson.loads(orjson.dumps(value))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, int) and value.bit_length() > 1023:
        return hex(value)  # too large for JSON parsers, and beyond 4,300 digits Python refuses to print it
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return _simplified(_default(value))
