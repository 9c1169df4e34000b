"""Modules that have moved to packages of their own are still found under the names that they had here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

#: The package that has what lay in a folder of ours, and where it lies there.
MOVED = {
    "cli.data": ("data", ".commands"),
    "data": ("data", ""),
}


class MovedModules:
    """Finds a moved module by its old name. Python asks it last, for a name that is nowhere else."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """How to load the module: as the one with the new name."""
        package, new_name = moved(name)
        if not package:
            return None
        try:
            return ModuleSpec(name, _Loaded(import_module(new_name)))  # type: ignore[arg-type]  # `Loader` takes long to import
        except ModuleNotFoundError as error:
            if error.name == new_name.partition(".")[0]:
                from ludus.errors import missing_package

                raise missing_package(f"{name} (now {new_name})", package) from error
            if error.name == new_name:
                return None
            raise


class _Loaded:
    """Gives out a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # Python has replaced it


def moved(name: str) -> tuple[str, str]:
    """The package that a module has moved to and the name that it has there; empty texts if it has not moved."""
    for old, (package, place) in MOVED.items():
        if f"{name}.".startswith(f"ludus.{old}."):
            return package, f"ludus_{package.replace('-', '_')}{place}{name[len('ludus.') + len(old) :]}"
    return "", ""


def find_moved_modules() -> None:
    """Let imports find moved modules."""
    if MovedModules not in sys.meta_path:
        sys.meta_path.append(MovedModules)
