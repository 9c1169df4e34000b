"""What installed packages offer to Ludus: their entry points.

They are read from the `entry_points.txt` of each `*.dist-info` folder on Python's search path. `importlib.metadata`
finds the same, but its import takes a fifth of the time of `ludus --help`.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any, NamedTuple


class EntryPoint(NamedTuple):
    """An object of a package, under the name by which users call it."""

    name: str
    value: str  #: `module` or `module:attribute`
    package: str  #: the name of the distribution, in small letters with hyphens

    @property
    def module(self) -> str:
        """The module that holds the object."""
        return self.value.partition(":")[0]

    def load(self) -> Any:
        """Import the object."""
        module, _, attribute = self.value.partition(":")
        return reduce(getattr, filter(None, attribute.split(".")), import_module(module))


#: The entry points of a package by group.
Groups = dict[str, list[EntryPoint]]


def entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group. A package that is installed while this process runs is seen."""
    packages = dict[str, Groups]()
    for place in sys.path:
        for package, groups in _read(place or ".", _changed(place or ".")).items():
            packages.setdefault(package, groups)  # Python imports the first one, too
    return [entry for groups in packages.values() for entry in groups.get(group, ())]


def named_entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name."""
    return {entry.name: entry for entry in entry_points(group)}


def packaged(group: str, name: str, what: str, package: str) -> Any:
    """What the entry point `name` of a package of ours stands for. If the package is missing, the `UserError` says
    what is missing and names the pip command."""
    installed = named_entry_points(group)
    if name not in installed:
        from ludus.errors import missing_package

        raise missing_package(what, package)
    return installed[name].load()


@lru_cache(maxsize=128)
def _read(place: str, changed: int) -> dict[str, Groups]:
    """The entry points of the packages in a folder, by package."""
    packages = dict[str, Groups]()
    try:
        folders = [name for name in os.listdir(place) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:  # a ZIP archive, or nothing at all
        return packages
    for folder in folders:
        package = re.sub(r"[-_.]+", "-", folder.rpartition(".")[0].partition("-")[0]).lower()
        groups = packages.setdefault(package, {})
        try:
            with open(os.path.join(place, folder, "entry_points.txt"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, ValueError):
            continue
        group = list[EntryPoint]()
        for line in map(str.strip, lines):
            if line.startswith("[") and line.endswith("]"):
                group = groups.setdefault(line[1:-1].strip(), [])
            elif "=" in line and not line.startswith(("#", ";")):
                name, value = line.partition("=")[::2]
                # `module:attribute [extra]`: the extra is an old form that nobody checks
                group.append(EntryPoint(name.strip(), value.partition("[")[0].replace(" ", ""), package))
    return packages


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0
