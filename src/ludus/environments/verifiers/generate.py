"""The tasks of a taskset as rows, in the taskset's order. A taskset may be endless, so use `--limit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.environments.verifiers.session import checked_source


def stream(seed: int, *, config: Any) -> Iterator[dict[str, Any]]:
    """The rows of the taskset in the settings. `seed` is not used: a taskset's seed, if any, is one of its settings."""
    from ludus.environments.verifiers.tasks import rows

    yield from rows(checked_source(config.taskset, config.settings))
