"""What holds for every test: a clock decides none of them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: How many examples hypothesis tries where a test says nothing else. `LUDUS_EXAMPLES=1000 make test` looks longer.
EXAMPLES = int(os.environ.get("LUDUS_EXAMPLES", "40"))

settings.register_profile(
    "any machine",
    settings.default,
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

gc.disable()  # what is collected is kept: to look for garbage meanwhile takes a quarter of the time


@pytest.fixture
def processor_limit() -> Iterator[None]:
    """Fails a test that spends half a minute of processor time, and does not end by itself for many more.

    For work that is quadratic, or worse, on texts that take a second where it is linear. Only this process counts, so
    that other load changes nothing.
    """

    def stop(*_: Any) -> None:
        pytest.fail("30 s of processor time were not enough: this is not linear")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, 30)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that in the end no process is left alone with one of them."""
    if os.environ.get("LUDUS_BARE"):
        from bare import concerns

        items[:] = [item for item in items if concerns(item)]
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Hundreds of thousands of objects live from here to the end: garbage collections pass over them."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are called by the name of their argument.

    An archive made with today's clock would give a test another name in every process, and pytest-xdist then runs none.
    """
    return argname if isinstance(val, bytes) else None
