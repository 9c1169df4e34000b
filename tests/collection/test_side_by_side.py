"""Several collections in one process, at once or one after the other, do not affect each other."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

import ludus
from ludus import Environment, Rollout, ScriptedModel
from ludus.models import open_model
from ludus.runtime.garbage import fewer_garbage_collections


async def all_of(environment: Any, **options: Any) -> list[Rollout]:
    return [rollout async for rollout in ludus.stream(environment, **options)]


async def test_two_collections_may_share_a_model(counter, rows, server):
    model = open_model(f"{server.url}#m", {})
    short, long = await asyncio.gather(
        all_of(counter, model=model, input=rows(2), concurrency=1),
        all_of(counter, model=model, input=rows(40), concurrency=2),
    )
    assert [rollout.error for rollout in short + long] == [None] * 42
    again = await all_of(counter, model=model, input=rows(2))
    assert [rollout.error for rollout in again] == [None] * 2, "the model starts again after its last user has left"


class LoggingModel(ScriptedModel):
    """Logs its starts and stops. The first `problems` starts fail."""

    def __init__(self, problems: int = 0) -> None:
        super().__init__(["done"], name="m")
        self.problems = problems
        self.log: list[str] = []

    async def start(self) -> None:
        await asyncio.sleep(0)
        if self.problems:
            self.problems -= 1
            raise OSError("no such file")
        self.log.append("start")

    async def stop(self) -> None:
        self.log.append("stop")


async def test_a_model_starts_with_its_first_user_and_stops_with_its_last():
    model, leave = LoggingModel(), asyncio.Event()

    async def use() -> None:
        async with model:
            assert model.log == ["start"]
            await leave.wait()

    users = [asyncio.create_task(use()) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    users[0].cancel()
    await asyncio.gather(users[0], return_exceptions=True)
    assert model.log == ["start"]
    leave.set()
    await asyncio.gather(*users[1:])
    assert model.log == ["start", "stop"]


async def test_after_a_failed_start_the_next_user_starts_the_model():
    model = LoggingModel(problems=1)

    async def use() -> None:
        async with model:
            pass

    first, second = await asyncio.gather(use(), use(), return_exceptions=True)
    assert isinstance(first, OSError)
    assert second is None
    assert model.log == ["start", "stop"]


def test_a_model_left_open_on_a_closed_loop_starts_again_on_the_next_loop():
    model = LoggingModel()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(model.__aenter__())
    loop.close()

    async def use() -> None:
        async with model:
            pass

    asyncio.run(use())
    assert model.log == ["start", "start", "stop"]


def test_overlapping_collections_restore_the_garbage_collector_at_the_end():
    before, frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    first, second = fewer_garbage_collections(), fewer_garbage_collections()
    with first:
        second.__enter__()
        assert gc.get_threshold() != before
    assert gc.get_threshold() != before, "the second collection still runs"
    thread = threading.Thread(target=second.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert gc.get_threshold() == before
    assert (gc.get_freeze_count() > 0) == frozen


def test_objects_that_the_program_froze_stay_frozen_after_a_collection():
    gc.freeze()
    with fewer_garbage_collections():
        pass
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize("settings", [{"agent.max_steps": 1}, {"limits.rollout": 7}, {"resources.compat": True}])
def test_settings_of_a_collection_do_not_change_the_environment_that_was_passed(counter, rows, settings):
    environment = Environment.load(counter)
    before = environment.agent.config, environment.limits, environment.config
    ludus.collect(environment, model=ScriptedModel(["done"]), input=rows(1), settings=settings)
    assert (environment.agent.config, environment.limits, environment.config) == before
