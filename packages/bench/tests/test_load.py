"""An environment under load: every session is counted, each tool has its times, and a blocked loop is named."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
from ludus_bench.profile.load import load_environment

from ludus import Resources, Response, ScriptedModel, tool
from ludus.errors import UserError

ROWS = [{"responses_create_params": {"input": str(number)}} for number in range(3)]
HELD = 1_000_000

#: Seconds that a planted call blocks. The watchdog sees a call that it meets twice, which takes 0.2 s at most.
BLOCK = 1.0


class Shop(Resources):
    """Holds a million bytes for each session."""

    async def open(self, task: Any) -> None:
        self.stock = bytearray(HELD)

    @tool
    async def buy(self, item: str, count: int) -> str:
        """Buy something."""
        return item * count

    @tool
    def refuse(self) -> str:
        """Always raises."""
        raise ValueError("closed")

    async def verify(self, task: Any, response: Response) -> float:
        return 1.0


class Blocking(Resources):
    """Blocks the event loop in its verifier."""

    async def verify(self, task: Any, response: Response) -> float:
        time.sleep(BLOCK)  # noqa: ASYNC251 (this is what the test is about)
        return 1.0


class Failing(Resources):
    """Cannot be judged."""

    async def verify(self, task: Any, response: Response) -> float:
        raise ValueError("boom")


@pytest.fixture(scope="module", autouse=True)
def _little_for_the_garbage_collector() -> None:
    """The memory of sessions is measured between full collections, which other tests' objects would slow down."""
    gc.collect()
    gc.freeze()


def test_every_session_tool_and_verdict_is_timed() -> None:
    found = load_environment(Shop, sessions=10, input=ROWS)
    assert found["counts"] == {"dispatched": 12, "completed": 12, "failed": 0, "masked": 0}  # whole repeats of 3 rows
    assert found["sessions_per_second"] == pytest.approx(12 / found["seconds"], rel=0.2)  # seconds are rounded
    assert {name: (each["count"], each["errors"]) for name, each in found["tools"].items()} == {
        "buy": (12, 0),
        "refuse": (12, 12),
    }
    for times in (*found["tools"].values(), found["stages"]["verify"]):
        assert 0 <= times["p50"] <= times["p99"] <= times["max"]
    assert found["stages"]["verify"]["count"] == 12
    assert [error["count"] for error in found["tool_errors"]] == [12]


def test_memory_is_that_of_a_session_in_flight() -> None:
    memory = load_environment(Shop, sessions=9, input=ROWS)["memory"]
    assert memory["sessions"] == 9
    assert HELD <= memory["bytes_per_session"] < 1.2 * HELD


def test_fewer_rows_than_sessions_and_more_rows_than_sessions_both_work() -> None:
    assert load_environment(Shop, sessions=2, input=ROWS)["counts"]["dispatched"] == 2


@pytest.mark.slow
def test_a_verifier_that_blocks_the_loop_is_named() -> None:
    found = load_environment(Blocking, sessions=1, input=ROWS)
    assert ("verify", "test_load.py in verify") in {
        (call["stage"], call["function"]) for call in found["loop"]["blocked"]
    }


def test_failures_are_counted_and_no_memory_is_claimed() -> None:
    found = load_environment(Failing, sessions=3, input=ROWS)
    assert found["counts"]["failed"] == 3
    assert found["failures"] == {"verify/crash": 3}
    assert found["memory"] is None


def test_any_model_can_play() -> None:
    model = ScriptedModel([{"call": "buy", "arguments": {"item": "x", "count": 2}}, "done"])
    assert load_environment(Shop, model, sessions=3, input=ROWS)["tools"]["buy"]["count"] == 3


def test_built_in_environments_bear_load() -> None:
    for name in ("example_session_state_mgmt", "blackjack", "mcqa"):
        assert load_environment(name, sessions=5)["counts"]["failed"] == 0


def test_no_sessions_are_refused() -> None:
    with pytest.raises(UserError, match="at least 1"):
        load_environment(Shop, sessions=0, input=ROWS)
