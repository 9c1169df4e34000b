"""Fixtures that these tests share with those of Ludus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as started:
        yield started
