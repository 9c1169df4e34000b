"""Heavy packages are imported by the first test that uses them, and not when pytest collects, once in every process.

torch = lazily.imported("torch", "pip install 'ludus-transformers[train]'")
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


def imported(name: str, install: str) -> Any:
    """A stand-in for a module that imports it when it is first used. Skips the test file if it is not installed."""
    needs(name, install)
    return _Module(name)


def needs(name: str, install: str) -> None:
    """Skip the test file if a module is not installed, without importing more than the packages around it."""
    try:
        installed = importlib.util.find_spec(name) is not None
    except ImportError:
        installed = False
    if not installed:
        pytest.skip(f"needs {name.partition('.')[0]}: {install}", allow_module_level=True)


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks every name of a test file whether it is a test
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
