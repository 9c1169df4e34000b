"""The tasks of a taskset as rows, in its own order. There may be no end to them, so a run says how many it wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.integrations.verifiers import source


def stream(seed: int, *, config: Any) -> Iterator[dict[str, Any]]:
    """The rows of the taskset that the resources are set to. Its seed, if it has one, is one of its own settings."""
    from ludus.integrations.verifiers_tasks import rows

    yield from rows(source(config.taskset, config.settings))
