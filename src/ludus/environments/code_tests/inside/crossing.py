"""Values that cross from one process to the other: plain data only, as JSON. Decoding runs no code of the other side.

Other values cross as references, which the other side can only iterate.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

HEADER = struct.Struct("!I")
MOST = 64 << 20  # bytes of one message
SMALL = 1 << 62


class CannotCross(Exception):
    """A value that is not plain data was passed to the program, or used as if it were in this process."""


def encode(value: Any, refer: Callable[[Any], int] | None = None) -> Any:
    """A value as JSON data. Other values than plain data become references, or raise `CannotCross` without `refer`."""
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if isinstance(value, bool) or (isinstance(value, int) and -SMALL < value < SMALL):
        return bool(value) if isinstance(value, bool) else int(value)
    if isinstance(value, int):
        return ["int", hex(value)]
    if isinstance(value, (float, str)):
        return float(value) if isinstance(value, float) else str(value)
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes" if isinstance(value, bytes) else "bytearray", value.hex()]
    known = encode_known(value, refer)
    if known is not None:
        return known
    if refer is None:
        raise CannotCross(f"a value of type {kind.__name__} cannot be passed to the program")
    return ["reference", refer(value), kind.__name__]


def encode_known(value: Any, refer: Callable[[Any], int] | None) -> list[Any] | None:
    """A container or a value of the standard library as JSON data; None for anything else."""
    if isinstance(value, type):
        return ["type", value.__name__] if TYPES.get(value.__name__) is value else None
    fields = getattr(type(value), "_fields", None)
    if isinstance(value, tuple) and isinstance(fields, tuple) and len(fields) == len(value):
        return ["named", type(value).__name__, list(map(str, fields)), [encode(part, refer) for part in value]]
    for name, (view, _) in VIEWS.items():
        if isinstance(value, view):
            return [name, [encode(part, refer) for part in value]]
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return [name, [encode(part, refer) for part in value]]
    for name, mapping in MAPPINGS.items():
        if isinstance(value, mapping):
            return [name, [[encode(key, refer), encode(part, refer)] for key, part in value.items()]]
    for name, (kind, parts, _) in VALUES.items():
        if isinstance(value, kind):
            return [name, *parts(value)]
    return encode_array(value)


def encode_array(value: Any) -> list[Any] | None:
    """An array or a number of numpy, if numpy is imported here."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    array = numpy.asarray(value)
    if array.dtype.kind not in "biufcSUMm":
        return None
    name = "array" if isinstance(value, numpy.ndarray) else "number"
    return [name, array.dtype.str, list(array.shape), array.tobytes().hex()]


def decode(data: Any, reference: Callable[[int, str], Any]) -> Any:
    """The value of JSON data. Raises `ValueError` for data that `encode` does not make."""
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("an object is no value")
        return data
    name, *rest = data
    if name in SEQUENCES:
        return SEQUENCES[name](decode(part, reference) for part in rest[0])
    if name in MAPPINGS:
        return fill(MAPPINGS[name], [(decode(key, reference), decode(part, reference)) for key, part in rest[0]])
    if name in VALUES:
        return VALUES[name][2](*rest)
    if name in VIEWS:
        return VIEWS[name][1]([decode(part, reference) for part in rest[0]])
    if name == "named":
        kind = collections.namedtuple(str(rest[0]), [str(part) for part in rest[1][:200]])  # type: ignore[misc]
        return kind(*(decode(part, reference) for part in rest[2]))
    if name == "type":
        return TYPES[rest[0]]
    if name == "int":
        return int(rest[0], 16)
    if name in ("bytes", "bytearray"):
        return (bytes if name == "bytes" else bytearray).fromhex(rest[0])
    if name == "complex":
        return complex(*map(float, rest))
    if name == "reference":
        return reference(int(rest[0]), str(rest[1]))
    if name in ("array", "number"):
        import numpy

        array = numpy.frombuffer(bytes.fromhex(rest[2]), dtype=numpy.dtype(str(rest[0]))).reshape(rest[1]).copy()
        return array if name == "array" else array[()]
    raise ValueError(f"unknown kind of value {name!r:.40}")


def fill(kind: Callable[[], Any], pairs: list[tuple[Any, Any]]) -> Any:
    """A mapping with these pairs."""
    mapping = kind()
    for key, value in pairs:
        mapping[key] = value
    return mapping


SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
MAPPINGS: dict[str, Any] = {
    "counter": collections.Counter,
    "ordered": collections.OrderedDict,
    "default": collections.defaultdict,
    "dict": dict,
}
#: The views of a dict, and how they are made of their items.
VIEWS: dict[str, tuple[Any, Callable[[list[Any]], Any]]] = {
    "keys": (type({}.keys()), lambda items: dict.fromkeys(items).keys()),
    "values": (type({}.values()), lambda items: dict(enumerate(items)).values()),
    "items": (type({}.items()), lambda items: dict(items).items()),
}
#: The types that a program can return.
TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(int, float, complex, bool, str, bytes, bytearray, list, tuple, set, frozenset, dict, range, object, type),
        *(type(None), datetime.date, datetime.datetime, datetime.timedelta, decimal.Decimal, fractions.Fraction),
    )
}
#: For other values: their type, their parts, and how they are made of them.
VALUES: dict[str, tuple[Any, Callable[[Any], list[Any]], Callable[..., Any]]] = {
    "datetime": (datetime.datetime, lambda v: [v.isoformat()], datetime.datetime.fromisoformat),
    "date": (datetime.date, lambda v: [v.isoformat()], datetime.date.fromisoformat),
    "time": (datetime.time, lambda v: [v.isoformat()], datetime.time.fromisoformat),
    "timedelta": (
        datetime.timedelta,
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda *parts: datetime.timedelta(int(parts[0]), int(parts[1]), int(parts[2])),
    ),
    "decimal": (decimal.Decimal, lambda v: [str(v)], decimal.Decimal),
    "fraction": (fractions.Fraction, lambda v: [str(v)], fractions.Fraction),
    "range": (range, lambda v: [v.start, v.stop, v.step], lambda *parts: range(*map(int, parts))),
}


class Channel:
    """Messages through two pipes."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: Any) -> None:
        """Send one message."""
        self.send_text(json.dumps(message))

    def send_text(self, text: str) -> None:
        """Send one text as it is."""
        data = text.encode(errors="surrogatepass")
        rest = memoryview(HEADER.pack(len(data)) + data)
        while rest:
            rest = rest[os.write(self._writer, rest) :]

    def receive(self) -> Any:
        """The next message. Raises `EOFError` if the other side is gone, and `ValueError` for no message."""
        (size,) = HEADER.unpack(self._exactly(HEADER.size))
        if size > MOST:
            raise ValueError("the message is too long")
        return json.loads(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        return b"".join(self._parts(size))

    def _parts(self, size: int) -> Iterator[bytes]:
        while size:
            part = os.read(self._reader, min(size, 1 << 20))
            if not part:
                raise EOFError
            size -= len(part)
            yield part
