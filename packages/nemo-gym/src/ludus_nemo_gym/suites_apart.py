"""Keeps the suites of several servers apart in one pytest process.

Each server has an `app.py`, and many have a `utils.py` and a `tests/test_app.py`. By bare names, the second server
would get the modules of the first. What a suite imported from its folder by bare names, and its entries of the import
path, are there only while tests of that folder are collected or run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ludus_nemo_gym.names import ENVIRONMENTS, KINDS


def server_around(place: Path, checkout: Path) -> Path | None:
    """The folder of the server that a file or folder of a checkout belongs to."""
    here = place.absolute()
    folders = (folder for folder in (here, *here.parents) if checkout in folder.parents)
    return next((folder for folder in folders if (folder / "app.py").is_file()), None)


class SuitesApart:
    """A plugin of pytest for runs with the suites of several servers of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._servers: dict[str, Path | None] = {}  # the server of each folder that was seen
        self._modules: dict[Path, dict[str, ModuleType]] = {}
        self._places: dict[Path, list[str]] = {}
        self._current: Path | None = None

    def pytest_plugin_registered(self, plugin: object) -> None:
        """Set aside what a `conftest.py` imported, before that of another server is read."""
        if Path(getattr(plugin, "__file__", None) or "").name == "conftest.py":
            self._leave()

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """A file of tests is imported next."""
        self._enter(collector)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """A test may import modules itself, and name them in patches."""
        self._enter(item)
        return (yield)

    def _enter(self, node: pytest.Collector | pytest.Item) -> None:
        server = self._server_of(str(node.path if node.path.is_dir() else node.path.parent))
        if server is None or server == self._current:
            return
        self._leave()
        self._current = server
        sys.modules.update(self._modules.pop(server, {}))
        sys.path[:0] = dict.fromkeys([*self._places.pop(server, []), str(server)])

    def _leave(self) -> None:
        """Set aside all modules with bare names that lie in servers' folders, and those folders."""
        self._current = None
        for name, module in list(sys.modules.items()):
            server = None if name.partition(".")[0] in (*KINDS, ENVIRONMENTS) else self._server_of(_folder_of(module))
            if server is not None:
                self._modules.setdefault(server, {})[name] = sys.modules.pop(name)
        for place in list(sys.path):
            if (server := self._server_of(place)) is not None:
                self._places.setdefault(server, []).append(place)
                sys.path.remove(place)

    def _server_of(self, folder: str) -> Path | None:
        """The server that a folder belongs to. A virtual environment in a server's folder is no part of it."""
        if not folder.startswith(f"{self._checkout}/"):
            return None
        if folder not in self._servers:
            inside = "site-packages" in Path(folder).relative_to(self._checkout).parts
            self._servers[folder] = None if inside else server_around(Path(folder), self._checkout)
        return self._servers[folder]


def _folder_of(module: ModuleType) -> str:
    """Where a module lies: the folder of its file, or of a package without `__init__.py`."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file.rpartition("/")[0]
    try:
        return str(next(iter(getattr(module, "__path__", ())), ""))
    except Exception:  # lazy modules of other libraries may fail
        return ""
