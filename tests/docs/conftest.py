"""A stub of a model server for the pages that need a key or a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from model_stub import ModelStub
from servers import running


@pytest.fixture(scope="module")
def model_address() -> Iterator[str]:
    with running(ModelStub()) as stub:
        yield stub.url.removeprefix("http://").removesuffix("/v1")
