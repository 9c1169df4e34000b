"""The Python that has inspect-ai: this one, or that of `make interop`."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTEROP = Path(os.environ.get("LUDUS_INTEROP_VENV") or ROOT / ".venv-interop").absolute()
TASKS = Path(__file__).parent / "tasks" / "behaviours.py"


def inspect_python() -> str:
    """Its path. Skips the test where there is none."""
    if importlib.util.find_spec("inspect_ai") is not None:
        return sys.executable
    if not list(INTEROP.glob("lib/python*/site-packages/inspect_ai")):
        pytest.skip(f"inspect-ai is not installed, nor in {INTEROP}: make interop")
    return str(INTEROP / "bin" / "python")
