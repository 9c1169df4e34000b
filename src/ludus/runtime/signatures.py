"""Checks of an author's class before it runs: its methods exist, have the right names, and take our arguments.

The base class is the specification: an overriding method must take the same arguments. Without this check, Python would
report a wrong method only when it is called, after the model was paid.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from types import CodeType, FunctionType
from typing import Any, ParamSpec, TypeVar

from ludus.errors import UserError
from ludus.runtime.imports import place_of
from ludus.runtime.threads import is_async

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def def_or_async(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Awaitable[T] | T]:
    """Marks a method that a subclass may write as `async def` or as `def`; a `def` runs on a thread.

    Type checkers accept both. Without this mark a method must be like that of its base class.
    """
    method.__ludus_def_or_async__ = True  # type: ignore[attr-defined]
    return method


def or_async(method: F) -> F:
    """Marks a plain method that a subclass may also write as `async def`. Its return type names both."""
    method.__ludus_def_or_async__ = True  # type: ignore[attr-defined]
    return method


def check_methods(kind: type, base: type, required: Collection[str]) -> None:
    """Refuse a class that lacks a `required` method, or that overrides a method of `base` with other arguments."""
    own = own_methods(kind, base)
    for name in required:
        if getattr(kind, name) is getattr(base, name):
            raise _missing(kind, base, name, own)
    used = used_names(kind, base)
    hooks = (name for name in vars(base) if not name.startswith("_") and inspect.isroutine(getattr(base, name)))
    for hook in hooks:
        if inspect.getattr_static(kind, hook) is not inspect.getattr_static(base, hook):
            _check_method(kind, base, hook)
            continue
        for name, method in own.items():
            if _is_misspelled(name, hook) and name not in used and not hasattr(method, "__ludus_tool__"):
                message = f"{place_of(method, kind)}: {kind.__name__}.{name} is never called"
                raise UserError(message, f"Did you mean to call it {hook}?")


def own_methods(kind: type, base: type) -> dict[str, FunctionType]:
    """The methods of the author's classes that `base` does not have."""
    return {name: method for name, method in _methods(kind, base) if not hasattr(base, name)}


def used_names(kind: type, base: type) -> set[str]:
    """The names that the methods of the author's classes use."""
    return {name for _, method in _methods(kind, base) for name in _names(method.__code__)}


def _missing(kind: type, base: type, name: str, own: dict[str, FunctionType]) -> UserError:
    similar = difflib.get_close_matches(name, own, n=1, cutoff=0.7)
    place = place_of(*(own[other] for other in similar), kind)
    hint = f"Rename {similar[0]} to {name}" if similar else f"Write {_expected(base, name)}"
    return UserError(f"{place}: {kind.__name__} has no method {name}", hint)


def _check_method(kind: type, base: type, name: str) -> None:
    method, original = getattr(kind, name), getattr(base, name)
    either = hasattr(original, "__ludus_def_or_async__")
    expected = f"Write {_expected(base, name)}"
    if not callable(method):
        raise _wrong(kind, name, "is not a method", expected)
    on_class = isinstance(inspect.getattr_static(base, name), classmethod)
    if on_class and isinstance(inspect.getattr_static(kind, name), FunctionType):
        raise _wrong(kind, name, "is called on the class", "Write @classmethod as its first decorator")
    has_yield = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
    if _is_context(original):
        if has_yield or is_async(method):
            raise _wrong(kind, name, "is not a context manager", "Write @asynccontextmanager directly above its def")
    elif has_yield:
        raise _wrong(kind, name, "is a generator, because it contains yield", f"{expected} with return")
    elif not either and is_async(original) and not is_async(inspect.unwrap(method)):
        raise _wrong(kind, name, "is def, and it is awaited", expected)
    elif not either and is_async(method) and not is_async(original):
        raise _wrong(kind, name, "is async def, and it is not awaited", expected)
    _check_arguments(kind, base, name)


def _check_arguments(kind: type, base: type, name: str) -> None:
    try:
        signature = inspect.signature(getattr(kind, name))
    except (TypeError, ValueError):  # a builtin does not say what it takes
        return
    passed = [parameter.name for parameter in _passed(base, name)]
    first = ["self"] if isinstance(inspect.getattr_static(kind, name), FunctionType) else []
    takes = list(signature.parameters)[len(first) :]
    try:
        signature.bind(*first, *passed)
        swapped = takes != passed and sorted(takes) == sorted(passed)
    except TypeError:
        swapped = True
    if swapped:
        plain = [parameter.replace(annotation=parameter.empty) for parameter in _parameters(kind, name)]
        problem = f"{inspect.Signature(plain)} is called with ({', '.join(passed)})"
        raise _wrong(kind, name, problem, f"Write {_expected(base, name)}")


def _wrong(kind: type, name: str, problem: str, hint: str) -> UserError:
    space = "" if problem.startswith("(") else " "
    return UserError(f"{place_of(getattr(kind, name), kind)}: {kind.__name__}.{name}{space}{problem}", hint)


def _expected(base: type, name: str) -> str:
    """The line that defines a method of `base`, without types: `async def verify(self, task, response)`."""
    original = getattr(base, name)
    first = "cls" if isinstance(inspect.getattr_static(base, name), classmethod) else "self"
    names = ", ".join([first, *(parameter.name for parameter in _passed(base, name))])
    return f"{'async def' if is_async(original) or _is_context(original) else 'def'} {name}({names})"


def _is_context(method: Any) -> bool:
    """Whether a method is an `@asynccontextmanager`."""
    return inspect.isasyncgenfunction(inspect.unwrap(method)) and not inspect.isasyncgenfunction(method)


def _parameters(kind: type, name: str) -> list[inspect.Parameter]:
    """The parameters of a method as its author wrote them, `self` or `cls` included."""
    method = inspect.getattr_static(kind, name)
    return list(inspect.signature(getattr(method, "__func__", method)).parameters.values())


def _passed(base: type, name: str) -> list[inspect.Parameter]:
    """The parameters of a method of `base` that every caller passes, without `self` or `cls`."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        parameter
        for parameter in _parameters(base, name)[1:]
        if parameter.kind in positional and parameter.default is parameter.empty
    ]


def _methods(kind: type, base: type) -> Iterator[tuple[str, FunctionType]]:
    """The methods that the author's classes define."""
    for parent in kind.__mro__:
        for name, member in vars(parent).items() if not issubclass(base, parent) else ():
            function = getattr(member, "__func__", member)
            function = inspect.unwrap(function) if callable(function) else function
            if isinstance(function, FunctionType):
                yield name, function


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function uses, and the functions inside it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_misspelled(name: str, meant: str) -> bool:
    """Whether a name has the letters of another in a wrong order, or lacks one of them."""
    if len(name) == len(meant):
        return name != meant and sorted(name) == sorted(meant)
    return any(name == meant[:at] + meant[at + 1 :] for at in range(len(meant)))
