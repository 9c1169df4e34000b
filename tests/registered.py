"""Entry points of packages that are not installed."""

from __future__ import annotations

import pytest

from ludus.runtime.installed import EntryPoint


def register(monkeypatch: pytest.MonkeyPatch, group: str, **values: str) -> None:
    """Make these the only entry points of a group that packages bring, and leave the other groups empty."""
    entries = [EntryPoint(name, value, "another-package") for name, value in values.items()]
    monkeypatch.setattr("ludus.runtime.installed.entry_points", lambda asked: entries if asked == group else [])
