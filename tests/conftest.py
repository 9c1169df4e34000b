"""Fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from counting import counter, rows
from servers import Server, running

__all__ = ["counter", "rows", "server"]

os.environ.pop("COLUMNS", None)  # tests must not depend on the terminal's width


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as started:
        yield started
