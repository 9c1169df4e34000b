"""An agent server whose resources are on another server answers with that server's metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from ludus_nemo_gym.in_process import ask
from serving import COUNTER

from ludus.environment import Environment
from ludus.http.app import App
from ludus.http.listening import Listening, bind
from ludus.http.messages import Incoming, Reply
from ludus.remote.http import connect
from ludus.remote.resources import remote_resources
from ludus.runtime.encoding import encode
from ludus.serve.behind import MetricsRoute, reverify_mode

ROWS = {"verify_responses": [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]}


class Behind(App):
    """A resources server that computes metrics of its own, or cannot, or has none."""

    def __init__(self, status: int, mode: Any = "stateless") -> None:
        super().__init__()
        self._status, self._mode = status, mode
        self.routes["GET", "/reverify_mode"] = self.say_mode
        if status != 404:
            self.routes["POST", "/aggregate_metrics"] = self.compute

    async def say_mode(self, incoming: Incoming) -> Reply:
        return Reply.of(self._mode)

    async def compute(self, incoming: Incoming) -> Reply:
        rewards = [row["reward"] for row in incoming.json()["verify_responses"]]
        return Reply.of({"key_metrics": {"best": max(rewards)}}, self._status)


async def metrics_and_mode(app: App) -> tuple[int, dict[str, Any], str]:
    """The metrics of an environment whose resources an application serves, and what it says about judging again."""
    listening = bind("behind", "127.0.0.1", 0)
    server = Listening(app, listening)
    await server.begin()
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        environment = remote_resources(Environment.load(COUNTER), url)
        async with connect(url, "LUDUS_TOKEN") as client:
            front = App()
            shared = SimpleNamespace(client=client)
            front.routes["POST", "/aggregate_metrics"] = MetricsRoute(environment, shared)
            status, body = await ask(front, "/aggregate_metrics", encode(ROWS))
            return status, orjson.loads(body), await reverify_mode(client)
    finally:
        await server.stop()


async def test_the_metrics_of_the_server_behind_take_the_place_of_ours() -> None:
    assert await metrics_and_mode(Behind(200)) == (200, {"key_metrics": {"best": 1.0}}, "stateless")


async def test_ours_stand_where_the_server_behind_has_none() -> None:
    status, metrics, _ = await metrics_and_mode(Behind(404))
    assert (status, metrics["key_metrics"]) == (200, {"mean/reward": 1.0})


async def test_an_error_of_the_server_behind_is_passed_on() -> None:
    status, metrics, _ = await metrics_and_mode(Behind(500))
    assert (status, metrics) == (500, {"key_metrics": {"best": 1.0}})


@pytest.mark.parametrize("mode", ["sometimes", None, {"mode": "stateless"}, 1])
async def test_a_server_that_says_nothing_we_know_about_judging_again_is_unknown(mode: Any) -> None:
    assert (await metrics_and_mode(Behind(200, mode)))[2] == "unknown"
