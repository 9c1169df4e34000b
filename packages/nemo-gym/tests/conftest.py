"""Fixtures that these tests share with those of Ludus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_commands import FEW_PLUGINS, answers
from servers import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as started:
        yield started


@pytest.fixture
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pytest that a command starts does not import the plugins of other packages."""
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(FEW_PLUGINS))


@pytest.fixture
def in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is an empty checkout. The scripted model adds 5 to a counter and says that it is done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "")
    for name in [name for name in os.environ if name.startswith(("LUDUS_SETTING_", "LUDUS_KEY_"))]:
        monkeypatch.delenv(name)
    answers({"call": "increment_counter", "arguments": {"count": 5}}, "done")
