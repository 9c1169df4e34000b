"""Imports the code of a checkout: always from its source, and anew each time a server is built.

Python takes cached bytecode for fresh if the file's size and second of change are the same. An edited verifier could
then judge by its old code, under the receipt of the new one.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_SITE = "site-packages"
_EXTENSIONS = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)


class _FromSource(importlib.machinery.SourceFileLoader):
    """Compiles a file whenever it is imported, and leaves no bytecode beside it."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the source as it is now."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def import_fresh(name: str, search_path: Iterable[str], folders: Iterable[Path]) -> ModuleType:
    """Import a module with `search_path` in front of Python's. Modules of `folders` are forgotten first.

    So are modules that other code has imported under a name that this code may mean: those of another checkout, and
    those that lie in the folder of another server, such as its `utils`.
    """
    places, searched = [str(folder) for folder in folders], list(search_path)
    for loaded, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if loaded.partition(".")[0] == name.partition(".")[0]:
            forgotten = _is_inside(file, places) or not _is_inside(file, searched)
        else:
            forgotten = _is_inside(file, [*places, *_server_folders()])
        if forgotten:
            del sys.modules[loaded]
    for place in reversed(searched):
        if place in sys.path:
            sys.path.remove(place)
        sys.path.insert(0, place)
        if Path(place).name != _SITE:  # of installed servers, only their own folder
            _compile_always(place, is_server=place == searched[0])
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _server_folders() -> list[str]:
    """The folders of the servers that this process has imported."""
    return [hook.place for hook in sys.path_hooks if getattr(hook, "is_server", False)]  # type: ignore[attr-defined]


def _compile_always(place: str, *, is_server: bool) -> None:
    """Import everything below a folder from its source."""
    if not any(getattr(hook, "place", None) == place for hook in sys.path_hooks):
        sys.path_hooks.insert(0, _hook(place, is_server))
        for path in [path for path in sys.path_importer_cache if _is_inside(path, [place])]:
            del sys.path_importer_cache[path]


def _hook(place: str, is_server: bool) -> Callable[[str], Any]:
    finder = importlib.machinery.FileFinder.path_hook(_EXTENSIONS, (_FromSource, [".py"]))

    def hook(path: str) -> Any:
        if not _is_inside(path, [place]):
            raise ImportError(path)
        return finder(path)

    hook.place, hook.is_server = place, is_server  # type: ignore[attr-defined]
    return hook


def _is_inside(path: str | None, places: Iterable[str]) -> bool:
    """Whether a file or folder is one of the places or lies in one.

    A virtual environment in a server's folder is no part of it. The folder itself may lie in an environment.
    """
    if path is None:
        return False
    inside = (f"{path}/".removeprefix(place) for place in places if f"{path}/".startswith(f"{place}/"))
    return any(f"/{_SITE}/" not in rest for rest in inside)
