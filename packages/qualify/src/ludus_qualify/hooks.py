"""The hooks of an environment: what its `qualify.py` defines, and the errors of a hook that returns the wrong thing.

Every error names the file and the line of the hook, and shows the wrong value to its end. docs/qualify-hooks.md
describes the hooks for authors.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ludus.errors import UserError, did_you_mean
from ludus.models.scripted import turn_problem
from ludus.response import Response
from ludus.runtime.imports import author_error, load_file, place_of
from ludus_qualify.attempts import Script, shown

T = TypeVar("T")

FILE = "qualify.py"
CONSTANTS = {"settings", "expected_exploits"}

#: The functions, and what they must return: the text of an error.
RETURNS = {
    "gold": "a text, a number or None",
    "answer": "a script or None",
    "oracle": "a script or None",
    "options": "a list",
    "chance": "a number",
    "exploits": "a dict of scripts",
    "preserving": "a dict of scripts",
    "breaking": "a dict of scripts",
    "program": "a script or None",
    "shell": "a script or None",
    "rivals": "a list",
}
_TWO_ARGUMENTS = {"answer": "task, text", "program": "task, source", "shell": "task, command"}


class Hooks:
    """The names that a `qualify.py` defines. `"gold" in hooks` says whether it defines one of them."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self._values = values or {}

    @classmethod
    def of(cls, folder: Path | None) -> Hooks:
        """Read the `qualify.py` of an environment's folder, if there is one."""
        path = folder / FILE if folder is not None else None
        return cls.read(path) if path is not None and path.is_file() else cls()

    @classmethod
    def read(cls, path: Path) -> Hooks:
        """Read a file with hooks, or the `qualify.py` of a folder."""
        path = path / FILE if path.is_dir() else path
        return cls(_read(load_file(path), path))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def constant(self, name: str) -> dict[str, Any]:
        """A dict that the file defines; empty without it."""
        return dict(self._values.get(name) or {})

    def place(self, name: str) -> str:
        """`FILE:LINE` of a function; empty without it."""
        return place_of(self._values[name]) if name in self._values else ""

    def call(self, name: str, convert: Callable[[Any], T], *arguments: Any) -> T:
        """The converted result of a function. Its exceptions become a `UserError` for the author.

        `convert` raises TypeError or ValueError for a result of the wrong kind.
        """
        hook = self._values[name]
        try:
            result = hook(*arguments)
            try:
                return convert(result)
            except (TypeError, ValueError) as error:
                wrong = f"{name}({_TWO_ARGUMENTS.get(name, 'task')}) must return {RETURNS[name]}"
                detail = f": {error}" if isinstance(error, _BadScript) else f", and returned {shown(repr(result))}"
                raise UserError(" ".join(f"{place_of(hook)}: {wrong}{detail}".split())) from error
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise author_error(error, hook) from error


class _BadScript(ValueError):
    """A script that a scripted model cannot play. The text says why."""


def script(result: Any) -> Script | None:
    """A script, checked turn by turn; None stays None."""
    if result is None or callable(result):
        return result  # type: ignore[no-any-return]
    for turn in result if isinstance(result, list) else [result]:
        if not isinstance(turn, Response) and (problem := turn_problem(turn)):
            raise _BadScript(f"{problem}. The script is {shown(repr(result))}")
    return result  # type: ignore[no-any-return]


def scripts(result: Any) -> dict[str, Script]:
    """Scripts by name. A name whose script is None is left out."""
    checked: dict[str, Script] = {}
    for name, value in dict(result or {}).items():
        try:
            valid = script(value)
        except _BadScript as error:
            raise _BadScript(f"{name}: {error}") from error
        if valid is not None:
            checked[str(name)] = valid
    return checked


def a_list(result: Any) -> list[Any]:
    """A list; None is an empty one."""
    return list(result or ())


def number(result: Any) -> float:
    """A finite number; None is 0."""
    value = float(result or 0.0)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def answer_text(result: Any) -> str | None:
    """A text or a number as a text; None and an empty text are None."""
    if result is None or result == "":
        return None
    if isinstance(result, bool) or not isinstance(result, str | int | float):
        raise TypeError("neither a text nor a number")
    return str(result)


def _read(module: ModuleType, path: Path) -> dict[str, Any]:
    """The known names of a `qualify.py`. A public function with an unknown name is refused: it may be a typo."""
    known = CONSTANTS | RETURNS.keys()
    hooks = {name: value for name, value in vars(module).items() if name in known}
    for name, value in hooks.items():
        where = f"{path}:{_line_of(path, name)}"
        if name in RETURNS and not callable(value):
            write = f"Write def {name}({_TWO_ARGUMENTS.get(name, 'task')})"
            raise UserError(f"{where}: {name} must be a function, and is {shown(repr(value))}", write)
        if name in CONSTANTS and not isinstance(value, dict | None):
            raise UserError(f"{where}: {name} must be a dict, and is {shown(repr(value))}")
    for name, value in (hooks.get("expected_exploits") or {}).items():
        match value:
            case (int() | float(), str()):
                continue
        where = f"{path}:{_line_of(path, 'expected_exploits')}: expected_exploits[{name!r}]"
        example = f'{{"{name}": (1.0, "why this is not a hole")}}'
        raise UserError(f"{where} must be (limit, reason), and is {shown(repr(value))}", f"Write {example}")
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__ and callable(value)
        if own and not name.startswith("_") and name not in RETURNS:
            hint = did_you_mean(name, known)
            where = f"{path}:{_line_of(path, name)}"
            raise UserError(f"{where}: qualification does not use {name}()", f"{hint} Start names of helpers with _")
    return hooks


def _line_of(path: Path, name: str) -> int:
    """The line that defines a name of a file; 1 if it comes from elsewhere."""
    for node in ast.parse(path.read_bytes()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if getattr(node, "name", None) == name or name in [getattr(target, "id", None) for target in targets]:
            return int(node.lineno)
    return 1
