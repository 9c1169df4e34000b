"""Loading the code of environments."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ludus.runtime.imports import stale_files


@pytest.fixture
def importing_collector() -> Iterator[None]:
    """A garbage collector that imports a module whenever it runs, as finalizers do that warn."""
    numbers, thresholds = count(), gc.get_threshold()

    def imports(phase: str, info: dict[str, Any]) -> None:
        name = f"imported_by_the_collector_{next(numbers)}"
        sys.modules[name] = ModuleType(name)

    gc.callbacks.append(imports)
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(imports)
        for name in [name for name in sys.modules if name.startswith("imported_by_the_collector_")]:
            del sys.modules[name]


def test_changed_files_are_found_while_the_garbage_collector_imports(importing_collector: None, tmp_path: Path) -> None:
    assert stale_files(tmp_path) == []
