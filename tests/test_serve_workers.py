"""Several workers behind one address: sessions find their way, and a dead worker takes only its own with it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of

import ludus
from ludus.serve.serving import Serving


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where the workers find the scripted model
        with served(COUNTER, workers=2) as running:
            yield running


def pids(serving: Serving) -> dict[int, int]:
    return {each["worker"]: each["pid"] for each in Web(serving.head_url).get("/health").json()["workers"]}


def sessions_by_worker(serving: Serving, count: int = 24) -> dict[int, list[Web]]:
    """Sessions on every worker: which one takes a new connection is up to the kernel, so there are many."""
    found: dict[int, list[Web]] = {0: [], 1: []}
    for _ in range(count):
        web = Web(url_of(serving, COUNTER))
        name = web.post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]
        found[int(name.partition(".")[0])].append(web)
    return found


def test_a_session_always_reaches_the_worker_that_owns_it(serving: Serving):
    for webs in sessions_by_worker(serving).values():
        for web in webs:
            for _ in range(4):  # each on a connection of its own, which any worker may accept
                assert web.post("/increment_counter", {"count": 1}).status == 200
            assert web.post("/get_counter_value", {}).json() == {"count": 5}
            assert web.post("/verify", {**COUNTER_ROW, "response": {"output": []}}).json()["reward"] == 0.0
            assert web.post("/close_session", {}).json() == {"closed": True}


def test_a_killed_worker_loses_its_own_sessions_and_comes_back(serving: Serving):
    held, before = sessions_by_worker(serving, 60), pids(serving)
    assert all(held.values()), "the kernel gave all connections to one worker"
    os.kill(before[0], signal.SIGKILL)
    for web in held[1]:
        assert web.post("/get_counter_value", {}).json() == {"count": 1}
    deadline = time.monotonic() + 60
    while Web(serving.head_url).get("/health").json()["status"] != "ok" or pids(serving)[0] == before[0]:
        assert time.monotonic() < deadline, "the worker did not come back"
        time.sleep(0.05)
    for web in held[0]:
        lost = web.post("/get_counter_value", {})
        assert (lost.status, lost.json()["kind"]) == (410, "session_lost")
        assert web.post("/seed_session", COUNTER_ROW).status == 200


def test_a_worker_killed_in_the_middle_fails_only_its_own_rollouts(serving: Serving):
    rows = [{**COUNTER_ROW, "number": number} for number in range(300)]
    agent = url_of(serving, f"{COUNTER}_simple_agent")

    async def collect() -> list[ludus.Rollout]:
        found = []
        async for rollout in ludus.stream(COUNTER, input=rows, agent=agent, concurrency=16):
            found.append(rollout)
            if len(found) == 40:
                os.kill(pids(serving)[1], signal.SIGKILL)
        return found

    found = asyncio.run(collect())
    failed = [rollout for rollout in found if rollout.error is not None]
    assert len(found) == len(rows)
    assert len(failed) < len(rows) // 4
    assert {rollout.error.kind for rollout in failed if rollout.error} <= {"disconnected", "refused"}
    assert all(rollout.reward == 1.0 for rollout in found if rollout.error is None)
