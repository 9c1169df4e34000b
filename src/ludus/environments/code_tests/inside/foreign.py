"""Objects and exceptions of the program, as the tests see them. Other values raise `CannotCross`.

A program that is right must not fail because of the two processes: an operation that the object has, and that only the
other process could do, cannot be judged. An operation that the object lacks fails as it would anywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from ludus.environments.code_tests.inside.crossing import CannotCross


class ProgramError(Exception):
    """The program raised an exception of a type that is unknown here."""


class Foreign:
    """An object of the program that is no plain data. It can be iterated and measured."""

    def __init__(self, program: Any, number: int, kind: str) -> None:
        vars(self).update(_program=program, _number=number, _kind=kind, _items=[], _source=None, _ended=False)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """A class of the context if the object is of it, so that `isinstance` works."""
        mine = vars(self)
        return _of_context(mine["_program"].known, mine["_kind"]) or Foreign

    def __hash__(self) -> int:
        raise CannotCross(f"the tests need the hash of {_named(self)}")

    def __iter__(self) -> Iterator[Any]:
        """The items, the same ones each time; an iterator of the program goes on where it is."""
        mine = vars(self)
        if mine["_source"] is None:
            reply = mine["_program"].ask("iterate", mine["_number"])
            if reply.get("itself"):
                return self._rest()
            mine["_source"] = reply.get("value")
        return self._cached()

    def _rest(self) -> Iterator[Any]:
        while True:
            try:
                item = self.__next__()
            except StopIteration:
                return
            yield item

    def _cached(self) -> Iterator[Any]:
        mine, at = vars(self), 0
        while True:
            if at == len(mine["_items"]):
                reply = {"end": True} if mine["_ended"] else mine["_program"].ask("advance", mine["_source"])
                if reply.get("end"):
                    mine["_ended"] = True
                    return
                mine["_items"].append(mine["_program"].value(reply.get("value")))
            yield mine["_items"][at]
            at += 1

    def __next__(self) -> Any:
        reply = vars(self)["_program"].ask("advance", vars(self)["_number"])
        if reply.get("end"):
            raise StopIteration
        return vars(self)["_program"].value(reply.get("value"))

    def __len__(self) -> int:
        """The length, which must be the number of items if there are items."""
        length = int(vars(self)["_program"].ask("length", vars(self)["_number"]).get("value", 0))
        if not _has(self, "__iter__"):
            if _has(self, "__getitem__"):
                raise CannotCross(f"the tests use the length of {_named(self)}, whose items are not known")
            return length
        if _has(self, "__next__") or sum(1 for _ in self) != length:
            raise ProgramError(f"the length of {_named(self)} is {length}, and it has another number of items")
        return length

    def __bool__(self) -> bool:
        if _has(self, "__bool__"):
            raise CannotCross(f"the tests use the truth of {_named(self)}")
        return len(self) > 0 if _has(self, "__len__") else True

    def __getattr__(self, name: str) -> Any:
        if not _has(self, name):
            raise AttributeError(f"{_named(self)} has no attribute {name}")
        raise CannotCross(f"the tests use {name} of {_named(self)}")


def _of_context(known: dict[str, Any], name: str) -> type | None:
    """A class that the context defines, by its name."""
    kind = known.get(name)
    return kind if isinstance(kind, type) and kind.__module__ == "__main__" else None


def _has(value: Foreign, name: str) -> bool:
    """Whether an object of the program has an attribute; a special method must not be `object`'s own."""
    return bool(vars(value)["_program"].ask("has", vars(value)["_number"], name).get("value"))


def _named(value: Foreign) -> str:
    return f"an object of type {vars(value)['_kind']} of the program"


def _operation(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Foreign, *rest: Any) -> Any:
        if _has(self, name):
            raise CannotCross(f"the tests use {name} of {_named(self)}")
        return otherwise(self, *rest)

    return method


def _unsupported(self: Foreign, *rest: Any) -> Any:
    raise TypeError(f"{_named(self)} does not support this")


def _among(self: Foreign, item: Any) -> bool:
    return any(member is item or member == item for member in self)


Foreign.__eq__ = _operation("__eq__", lambda self, other: self is other)  # type: ignore[method-assign]
Foreign.__repr__ = _operation("__repr__", lambda self: f"<{_named(self)}>")  # type: ignore[method-assign]
Foreign.__str__ = _operation("__str__", lambda self: repr(self))  # type: ignore[method-assign]
setattr(Foreign, "__contains__", _operation("__contains__", _among))  # noqa: B010
for _each in "lt le gt ge add sub mul truediv floordiv mod pow neg and or xor".split():
    setattr(Foreign, f"__{_each}__", _operation(f"__{_each}__", lambda self, *rest: NotImplemented))
for _each in "getitem setitem delitem call reversed int float index abs round enter exit".split():
    setattr(Foreign, f"__{_each}__", _operation(f"__{_each}__", _unsupported))


async def awaited(program: Any, number: int) -> Any:
    """A coroutine for one of the program: the program runs it to its end when the tests await it."""
    return program.value(program.ask("finish", number).get("value"))


def exception_of(reply: dict[str, Any], known: dict[str, Any]) -> BaseException:
    """The exception that the program raised, if its type is known here and no signal to a test framework.

    `known` are the names of the context: the program may raise what is defined there.
    """
    error = _exception_of(reply, known)
    vars(error)["_of_program"] = True
    return error


def is_of_program(error: BaseException) -> bool:
    """Whether the program raised an exception, and not the tests."""
    return "_of_program" in vars(error)


def _exception_of(reply: dict[str, Any], known: dict[str, Any]) -> BaseException:
    text = str(reply.get("text", ""))
    try:
        names = [(str(module), str(name)) for module, name in reply["raised"]]
    except (TypeError, ValueError):
        return ProgramError(text)
    for module, name in names:
        ours = _of_context(known, name) if module == "__main__" else None
        if ours is not None and issubclass(ours, Exception) and not issubclass(ours, StopIteration):
            return exception_with(ours, text)
        kind = getattr(sys.modules.get(module), name, None) if "." not in name else None
        allowed = isinstance(kind, type) and issubclass(kind, (Exception, SystemExit))
        if allowed and module.partition(".")[0] not in ("__main__", "unittest", "pytest", "_pytest"):
            if kind in (Exception, SystemExit) and names[0] != (module, name):
                break
            if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):  # type: ignore[arg-type]
                break  # it would end a loop of the tests
            return exception_with(kind, text)  # type: ignore[arg-type]
    return ProgramError(f"{names[0][1] if names else 'an exception'}: {text}")


def exception_with(kind: type[BaseException], text: str) -> BaseException:
    """An exception with a text, also of a type that wants other arguments."""
    try:
        return kind(text)
    except Exception:
        error = kind.__new__(kind)
        error.args = (text,)
        return error
