"""Values on their way between the process of the tests and the process of the code under test.

Plain values are copied. Lists, dictionaries and sets exist on both sides and are made equal with every message, so that
a list that the code changes is changed for the test too. Everything else stays where it was made and has a stand-in on
the other side (`Remote`), which asks. An exception class has a twin, so that `pytest.raises(Theirs)` works.

The host sends this file's text into the sandbox, with that of `apart.py`, so it imports nothing of ours.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import fractions
import pathlib
import sys
import threading
import time
import types
from typing import Any

#: The peer of this process.
PEERS: list[Any] = []
COPIED = {
    kind.__name__: kind
    for kind in (
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction, range, slice, pathlib.PosixPath, pathlib.PurePosixPath),
    )
}
BASES: tuple[Any, ...] = (int, str, float, bytes, tuple, frozenset)  # a stand-in of their subclasses is one too
BOXES: dict[str, Any] = {kind.__name__: kind for kind in (list, dict, set, bytearray)}
LATE = 10.0  # seconds to wait for a box
BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
SPECIAL = [
    *"call len iter next getitem setitem delitem contains reversed enter exit eq ne lt le gt ge hash bool".split(),
    *"neg pos abs invert int float complex index round trunc floor ceil fspath bytes format".split(),
    *(f"{before}{name}" for name in BINARY for before in ("", "r", "i")),
]
COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
DESCRIPTIVE = {"__name__", "__qualname__", "__doc__", "__module__"}
KEPT = ("lineno", "offset", "filename", "msg", "text", "errno", "strerror", "filename2", "name", "value", "code")


class Remote:
    """A stand-in for an object of the other process."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return PEERS[0].ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        PEERS[0].ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        PEERS[0].ask("delete", self, name)

    def __instancecheck__(self, value: Any) -> Any:
        return PEERS[0].ask("is_instance", self, value)

    def __repr__(self) -> str:
        return str(PEERS[0].ask("text", self, "repr"))

    def __str__(self) -> str:
        return str(PEERS[0].ask("text", self, "str"))

    def __dir__(self) -> Any:
        return PEERS[0].ask("names", self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memory: Any) -> Any:
        return self


def forwarder(name: str) -> Any:
    """A special method that asks the other process."""

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        if name in COMPARING and PEERS[0].judges and not isinstance(arguments[0], Remote):
            return NotImplemented  # an object of the code does not decide how it compares with a plain value
        return PEERS[0].ask("special", self, name, arguments, tuple(named.items()))

    return method


class RemoteModule(types.ModuleType):
    """A stand-in for a module of the code under test."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)
        return PEERS[0].ask("get", vars(self)["remote"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, RemoteModule):
            super().__setattr__(name, value)
        else:
            vars(self).setdefault("replaced", {}).setdefault(name, getattr(self, name, None))
            PEERS[0].ask("set", vars(self)["remote"], name, value)

    def __delattr__(self, name: str) -> None:
        before = vars(self).get("replaced", {}).pop(name, None)  # pytest undoes a change so: vars() lacks the name
        if before is not None:
            PEERS[0].ask("set", vars(self)["remote"], name, before)
        else:
            PEERS[0].ask("delete", vars(self)["remote"], name)


class Values:
    """What one process shows the other, and the stand-ins that it has."""

    def __init__(self, judges: bool) -> None:
        self.judges = judges
        self.side = "tests" if judges else "code"
        self.count = 0
        self.classes: list[type] = []
        self.lock = threading.Condition(threading.RLock())  # notified when boxes arrive
        self.numbers: dict[int, str] = {}  # by the id of an object of ours, or of a box
        self.shown: dict[str, Any] = {}  # objects of ours, by number
        self.stand_ins: dict[str, Any] = {}
        self.kinds: dict[str, Any] = {}  # types of stand-ins
        self.boxes: dict[str, list[Any]] = {}  # [object, its content in the last message]

    def message(self, kind: str, body: Any) -> Any:
        with self.lock:
            encoded = self.encode(body)
            return [kind, encoded, self._changes(), self._forgotten()]

    def opened(self, message: Any) -> tuple[str, Any]:
        kind, body, changes, forgotten = message
        with self.lock:
            for number, name, _ in changes:
                if number not in self.boxes:
                    empty = BOXES[name]()
                    self.boxes[number], self.numbers[id(empty)] = [empty, None], number
            self.lock.notify_all()
            deadline = time.monotonic() + LATE
            while True:
                try:
                    for number, name, content in changes:
                        box = self.boxes[number]
                        if content != box[1]:
                            fill(box[0], name, [self.decode(part) for part in content])
                            box[1] = content
                    decoded = self.decode(body)
                    break
                except KeyError:  # a box that another thread's message brings
                    if time.monotonic() > deadline:
                        raise
                    self.lock.wait(0.1)
            for number in forgotten:
                self._forget(number)
            return kind, decoded

    def _changes(self) -> list[Any]:
        """Boxes that changed since the last message. Boxes in boxes are found while these are encoded."""
        changes, done = [], 0
        while done < len(self.boxes):
            for number in list(self.boxes)[done:]:
                box = self.boxes[number]
                content = [self.encode(part) for part in parts_of(box[0])]
                if content != box[1]:
                    box[1] = content
                    changes.append([number, type(box[0]).__name__, content])
                done += 1
        return changes

    def _forgotten(self) -> list[str]:
        """Boxes that nothing on this side holds but this table: they need not be kept equal."""
        unused: list[Any] = [[], None]
        least = sys.getrefcount(unused[0])
        alone = [number for number, box in self.boxes.items() if sys.getrefcount(box[0]) <= least]
        for number in alone:
            self._forget(number)
        return alone

    def _forget(self, number: str) -> None:
        if box := self.boxes.pop(number, None):
            self.numbers.pop(id(box[0]), None)

    def encode(self, value: Any) -> Any:
        """A value as JSON: plain values as they are, the others as a list whose first part says what it is."""
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if value.bit_length() < 4096 else ["int", hex(value)]
        if kind is float:
            return ["float", repr(value)]
        if kind is bytes:
            return ["bytes", value.hex()]
        if kind in (tuple, frozenset):
            return [kind.__name__, [self.encode(part) for part in value]]
        if value is NotImplemented or value is Ellipsis:
            return ["builtin", repr(value)]
        if kind.__name__ in BOXES and kind is BOXES[kind.__name__]:
            return ["box", self._box(value)]
        if kind.__name__ in COPIED and kind is COPIED[kind.__name__]:
            return ["copied", kind.__name__, [self.encode(part) for part in value.__reduce__()[1]]]
        if issubclass(kind, Remote):
            return ["yours", object.__getattribute__(value, "_remote_id")]
        if kind is RemoteModule:
            return self.encode(vars(value)["remote"])
        if issubclass(kind, type) and (value.__module__ == "builtins" or issubclass(value, BaseException)):
            return self._class(value)
        if issubclass(kind, BaseException):
            return self._exception(value)
        return self._shown(value)

    def _number(self, value: Any) -> str:
        if id(value) not in self.numbers:
            self.count += 1
            self.numbers[id(value)] = f"{self.side}{self.count}"
            if isinstance(value, type):
                self.classes.append(value)  # its id belongs to no other object from now on
        return self.numbers[id(value)]

    def _box(self, value: Any) -> str:
        number = self._number(value)
        self.boxes.setdefault(number, [value, None])
        return number

    def _shown(self, value: Any) -> Any:
        kind = type(value)
        number = self._number(value)
        self.shown[number] = value
        base: Any = next((kept for kept in BASES if kept in kind.__mro__), None)
        content = None if base is None else self.encode(base(value))
        methods = [f"__{name}__" for name in SPECIAL if defines(kind, f"__{name}__")]
        names = kind.__name__, methods, getattr(base, "__name__", None)
        return ["object", number, self._number(kind), *names, content]

    def _class(self, kind: Any) -> Any:
        known: Any = vars(builtins).get(kind.__name__)
        if kind is known:
            return ["builtin", kind.__name__]
        if (theirs := vars(kind).get("_remote_class")) is not None:
            return ["yours", theirs]
        bases = [self._class(base) for base in kind.__bases__ if issubclass(base, BaseException)]
        self.shown[number := self._number(kind)] = kind
        return ["exception class", number, kind.__name__, kind.__module__, bases]

    def _exception(self, error: BaseException) -> Any:
        if (theirs := vars(error).get("_remote_error")) is not None:
            return ["yours", theirs]
        self.shown[number := self._number(error)] = error
        named = {name: getattr(error, name) for name in KEPT if hasattr(error, name)}
        named.update({name: value for name, value in vars(error).items() if not name.startswith("__")})
        arguments = [self.encode(part) for part in error.args]
        return ["exception", number, self._class(type(error)), arguments, self.encode(tuple(named.items())), str(error)]

    def decode(self, data: Any) -> Any:
        """The value that was encoded."""
        if not isinstance(data, list):
            return data
        return getattr(self, f"_read_{data[0].replace(' ', '_')}")(*data[1:])

    _read_int = staticmethod(lambda text: int(text, 16))
    _read_float = staticmethod(float)
    _read_bytes = staticmethod(bytes.fromhex)

    def _read_tuple(self, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(self.decode(part) for part in parts)

    def _read_frozenset(self, parts: list[Any]) -> frozenset[Any]:
        return frozenset(self.decode(part) for part in parts)

    def _read_builtin(self, name: str) -> Any:
        value = getattr(builtins, name)
        return value if isinstance(value, type) or value in (NotImplemented, Ellipsis) else None

    def _read_box(self, number: str) -> Any:
        return self.boxes[number][0]

    def _read_copied(self, name: str, arguments: list[Any]) -> Any:
        return COPIED[name](*(self.decode(part) for part in arguments))

    def _read_yours(self, number: str) -> Any:
        return self.shown[number]

    def _read_object(
        self, number: str, kind: str, name: str, methods: list[str], base: str | None, content: Any
    ) -> Any:
        if number in self.stand_ins:
            return self.stand_ins[number]
        if kind not in self.kinds:
            members: dict[str, Any] = {method: forwarder(method) for method in methods if method[2:-2] in SPECIAL}
            bases: tuple[Any, ...] = (Remote,)
            if base is not None:
                bases, members = (Remote, getattr(builtins, base)), {}
            elif "__eq__" in members:
                members.setdefault("__hash__", None)
            self.kinds[kind] = type(name, bases, {"__slots__": ("_remote_id",), **members} if base is None else members)
        made = self.kinds[kind]
        stand_in = made.__new__(made) if base is None else made.__new__(made, self.decode(content))
        object.__setattr__(stand_in, "_remote_id", number)
        self.stand_ins[number] = stand_in
        return stand_in

    def _read_exception_class(self, number: str, name: str, module: str, bases: list[Any]) -> Any:
        if number not in self.kinds:
            members = {"__module__": module, "_remote_class": number, "__str__": text_of}
            self.kinds[number] = type(name, tuple(self.decode(base) for base in bases), members)
        return self.kinds[number]

    def _read_exception(self, number: str, kind: Any, arguments: list[Any], named: list[Any], text: str) -> Any:
        if number in self.stand_ins:
            return self.stand_ins[number]
        made = self.decode(kind)
        args = tuple(self.decode(part) for part in arguments)
        error = made.__new__(made, *args)
        error.args = args
        for name, value in [*self.decode(named), ("_remote_error", number), ("_remote_text", text)]:
            try:
                setattr(error, name, value)
            except (AttributeError, TypeError):
                continue
        self.stand_ins[number] = error
        return error


def text_of(error: Any) -> str:
    """The text of an exception whose class has a twin on the other side."""
    return str(vars(error).get("_remote_text", BaseException.__str__(error)))


def defines(kind: Any, name: str) -> bool:
    """Whether a class has a special method that is not the one of every object."""
    method = getattr(kind, name, None)
    return method is not None and method is not getattr(object, name, None)


def parts_of(box: Any) -> list[Any]:
    """The parts of a list, a dictionary or a set."""
    return [part for pair in box.items() for part in pair] if isinstance(box, dict) else list(box)


def fill(box: Any, name: str, parts: list[Any]) -> None:
    """Give a list, a dictionary or a set other parts."""
    if name in ("list", "bytearray"):
        box[:] = parts
    else:
        box.clear()
        box.update(zip(parts[::2], parts[1::2], strict=True) if name == "dict" else parts)
