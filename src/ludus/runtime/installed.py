"""What installed packages offer to Ludus: their entry points. Reading them takes milliseconds, so they are cached."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoints
from typing import Any


def entry_points(group: str) -> EntryPoints:
    """The entry points of a group. A package that is installed while this process runs is seen."""
    return _read(group, tuple((place, _changed(place)) for place in sys.path))


def packaged(group: str, name: str, what: str, package: str) -> Any:
    """What the entry point `name` of a package of ours stands for. If the package is missing, the `UserError` says
    what is missing and names the pip command."""
    installed = entry_points(group).select(name=name)
    if not installed:
        from ludus.errors import missing_package

        raise missing_package(what, package)
    return installed[name].load()


@lru_cache(maxsize=32)
def _read(group: str, search_path: tuple[tuple[str, int], ...]) -> EntryPoints:
    """The entry points of a group, for Python's search path with the times at which its folders changed."""
    return importlib.metadata.entry_points(group=group)


def _changed(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return 0
