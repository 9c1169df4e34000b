"""Adapters: what other people's tools call an environment, as one of ours.

A package registers a module in the entry point group `ludus.adapters`. The module offers three functions:

- `adapt(text)` returns the `Environment` of a path or another text, or None if the text names nothing of its kind,
- `needs(text)` returns what that environment needs on this machine, or None, and runs nothing of it,
- `listing(folder)` yields the environments in a folder.

The name of the entry may also be typed in front of the text, with a colon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ludus.errors import UserError, missing_package
from ludus.folder import FILE, no_such_path
from ludus.runtime.installed import EntryPoint, named_entry_points

GROUP = "ludus.adapters"
#: Files of other people's tools, which need no folder in front of their names.
_SUFFIXES = (".py", ".yaml", ".yml")


@dataclass(frozen=True)
class Need:
    """One thing that an environment needs. `met` is None if only running the environment can tell."""

    name: str
    met: bool | None
    why: str
    #: what to type, in this order
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """One environment in a folder of many. `problem` says why nothing else is known about it."""

    name: str
    path: str
    domain: str = ""
    #: the number of example rows
    rows: int | None = None
    needs: tuple[Need, ...] = ()
    problem: str = ""

    @property
    def runs(self) -> str:
        """Whether it runs here: `yes`, or the first thing that is missing."""
        if self.problem:
            return f"broken: {self.problem}"
        missing = next((need for need in self.needs if need.met is False), None)
        return "yes" if missing is None else f"{missing.name}: {missing.why}"


def adapt(which: str) -> Any:
    """The environment that an adapter makes of a text; None if the text is a name, or a folder of ours."""
    return _ask("adapt", which)


def has_prefix(text: str) -> bool:
    """Whether a text begins with the name of an adapter and a colon."""
    prefix, _, rest = text.partition(":")
    return bool(rest) and prefix in named_entry_points(GROUP)


def needs(which: str) -> list[Need]:
    """What the environment of an adapter needs on this machine, without running any of its code."""
    answer: list[Need] | None = _ask("needs", which)
    if answer is None:
        if not Path(which).exists():
            raise no_such_path(which)
        hint = "Name the folder of a server that was written for NeMo Gym"
        raise UserError(f"{which:.200} is not a folder of other people's tools that an adapter knows", hint)
    return answer


def listing(package: str, folder: str) -> Iterator[Listed]:
    """The environments in a folder of other people's tools, as the adapter of one of our packages reads it."""
    entry = named_entry_points(GROUP).get(package.replace("-", "_"))
    if entry is None:
        raise missing_package(f"what reads {folder:.200}", package)
    environments: Iterator[Listed] = _module(entry).listing(folder)
    return environments


def _ask(function: str, which: str) -> Any:
    """The first answer of an adapter that knows a text; None if the text is a name, or a folder of ours."""
    adapters = named_entry_points(GROUP)
    prefix, _, rest = which.partition(":")
    if prefix in adapters and rest:
        answer = getattr(_module(adapters[prefix]), function)(rest)
        if answer is None:
            raise UserError(f"{rest:.200} is not a folder that the adapter {prefix} knows", "Check the path")
        return answer
    if not _is_other_folder(which):
        return None
    answers = (getattr(_module(entry), function)(which) for entry in adapters.values())
    answer = next((answer for answer in answers if answer is not None), None)
    if answer is None and (Path(which) / "app.py").is_file() and (Path(which) / "configs").is_dir():
        raise missing_package(f"what plays {which:.200}, a server for NeMo Gym,", "nemo-gym")
    return answer


def _module(entry: EntryPoint) -> Any:
    return import_module(entry.module)


def _is_other_folder(which: str) -> bool:
    """Whether a text is the path of a file or folder that has no `environment.yaml`."""
    path = Path(which)
    try:
        if path.name == FILE or (path / FILE).is_file():
            return False
        return path.is_dir() or (("/" in which or path.suffix in _SUFFIXES) and path.is_file())
    except (OSError, ValueError):  # a text that cannot be a path
        return False
