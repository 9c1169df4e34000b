"""The samples of a task as rows. A worker reads them once for each process and each set of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus_inspect.process import read_rows
from ludus_inspect.settings import InspectConfig


def rows(seed: int, config: InspectConfig) -> Iterator[dict[str, Any]]:
    """The rows of a task. The seed changes nothing: a task has the samples that it has."""
    return read_rows(config)
