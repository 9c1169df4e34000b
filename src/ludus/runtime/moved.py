"""Modules that have moved to packages of their own are still found under the names that they had here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

#: The package that has what lay in a folder of ours, and where it lies there.
MOVED = {
    "models.transformers": ("transformers", ".model"),
    "train.trl": ("transformers", ".trl"),
    "train.trl_environment": ("transformers", ".trl_environment"),
    "train.trl_worker": ("transformers", ".trl_worker"),
    "cli.qualify": ("qualify", ".command"),
    "qualify": ("qualify", ""),
    "collection.chaos": ("bench", ".chaos"),
    "rescore.recall": ("qualify", ".recall"),
    "sandbox.remote": ("sandboxes", ".remote"),
    "serve.sandboxes": ("sandboxes", ".server"),
    "profile": ("bench", ".profile"),
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
            loaded = _Loaded(import_module(new_name))
            return ModuleSpec(name, loaded, is_package=loaded.is_folder)  # type: ignore[arg-type]
        except ModuleNotFoundError as error:
            if error.name == new_name.partition(".")[0]:
                from ludus.errors import missing_package

                raise missing_package(f"{name} (now {new_name})", package) from error
            if error.name == new_name:
                return None
            raise


class _Loaded:
    """Gives out a module that is loaded already. A folder of modules gets a stand-in, so that Python does not find the
    modules in it by itself and load them a second time."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__
        self.is_folder = hasattr(module, "__path__")

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None if self.is_folder else self.module

    def exec_module(self, module: ModuleType) -> None:
        if self.is_folder:
            module.__getattr__ = partial(getattr, self.module)  # type: ignore[method-assign]
        else:
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
