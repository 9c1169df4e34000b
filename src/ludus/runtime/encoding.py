"""JSON encoding: fast for ordinary values, and without exceptions for whatever a tool or a verifier returns."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import orjson
from orjson import OPT_SERIALIZE_NUMPY, dumps

_NO_NUMBER = re.compile("-?(NaN|Infinity)")


#: The text of an object that has no text of its own: `<object object at 0x7f...>`.
_ADDRESS = re.compile("<.* at 0x[0-9a-fA-F]+>", re.DOTALL)


class NotJsonError(TypeError):
    """A value that JSON lacks and that has no text of its own."""


def encode(value: Any) -> bytes:
    """Compact JSON. Values that JSON lacks are approximated: a set becomes a list, a lone surrogate a `?`."""
    return _encode(value, _default)


def encode_result(value: Any) -> bytes:
    """Compact JSON like that of `encode`. Raises `NotJsonError` for a value that is only an address to its reader."""
    return _encode(value, _default_of_result)


def _encode(value: Any, default: Callable[[Any], Any]) -> bytes:
    try:
        # asked about an object that it does not know, orjson would import numpy, which takes long
        return dumps(value, default, OPT_SERIALIZE_NUMPY if "numpy" in sys.modules else None)
    except (TypeError, ValueError) as error:
        if isinstance(error.__cause__, NotJsonError):
            raise error.__cause__ from None
        simplified = _simplified(value, default)
        return json.dumps(simplified, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


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
        return f"not JSON: {number[0]} at column {error.pos + 1} is not a JSON number, use null"
    if error.msg.startswith("unexpected end of data"):
        return f"not JSON: the line ends early, after column {len(error.doc.rstrip())}"
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


def _default_of_result(value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()  # or Python would warn that it was never awaited
        raise NotJsonError("a coroutine: await it")
    plain = _default(value)
    if isinstance(plain, str) and _ADDRESS.fullmatch(plain):
        raise NotJsonError(f"{type(value).__name__}: return JSON")
    return plain


def _simplified(value: Any, default: Callable[[Any], Any]) -> Any:
    """The value rebuilt from types that the standard library can encode: slow, for values that orjson refuses."""
    if isinstance(value, dict):
        return {str(key): _simplified(item, default) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_simplified(item, default) for item in value]
    if isinstance(value, orjson.Fragment):
        return orjson.loads(orjson.dumps(value))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, int) and value.bit_length() > 1023:
        return hex(value)  # too large for JSON parsers, and beyond 4,300 digits Python refuses to print it
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return _simplified(default(value), default)
