"""Servers that stop while weights change: all at once, recorded, and never left stopped."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from servers import Server, running, send

from ludus.errors import UserError
from ludus.models import open_model
from ludus.train.contract import GroupFeed


class Stopping(Server):
    """A server with the routes for training. `refuses` names a route that it does not have."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__()
        self.asked: list[str] = []
        self.refuses = refuses

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        self.asked.append(path)
        if b"content-length: 0" in self.headers[-1].lower():
            return await send(writer, 400, b'{"detail":"body: Field required"}')  # as SGLang does
        return await send(writer, 404 if self.refuses and path.startswith(self.refuses) else 200, b"{}")


async def update(how: str, *urls: str, kind: str = "vllm") -> dict[str, Any]:
    """The statistics after an update."""
    model: Any = open_model({"type": kind, "model": "m", "base_url": list(urls)})
    async with model:
        async with model.servers_stopped(how):
            pass
        stats: dict[str, Any] = model.stats()
        return stats


@pytest.mark.parametrize(
    ("kind", "how", "routes"),
    [
        ("vllm", "pause", ["/pause?mode=keep", "/resume"]),
        ("vllm", "drain", ["/pause?mode=wait", "/resume"]),
        ("sglang", "pause", ["/pause_generation", "/continue_generation"]),
    ],
)
def test_all_servers_stop_and_go_on_and_what_each_did_is_recorded(kind: str, how: str, routes: list[str]) -> None:
    with running(Stopping()) as one, running(Stopping()) as other:
        stats = asyncio.run(update(how, one.url, other.url, "http://127.0.0.1:9/v1", kind=kind))
    assert one.asked == other.asked == routes  # type: ignore[attr-defined]
    (stop,) = stats["stops"]
    assert stop["how"] == how
    assert [(answer["url"], answer.get("error")) for answer in stop["stopped"]] == [
        (one.url, None),
        (other.url, None),
        ("http://127.0.0.1:9/v1", "refused"),
    ]
    assert [answer["url"] for answer in stop["resumed"]] == [one.url, other.url]


def test_a_server_that_cannot_stop_ends_the_update_and_the_others_go_on() -> None:
    with ExitStack() as stack:
        good, bad = stack.enter_context(running(Stopping())), stack.enter_context(running(Stopping("/pause")))
        with pytest.raises(UserError, match=r"did not stop: http_404.*VLLM_SERVER_DEV_MODE=1"):
            asyncio.run(update("pause", good.url, bad.url))
    assert good.asked == ["/pause?mode=keep", "/resume"]  # type: ignore[attr-defined]
    assert bad.asked == ["/pause?mode=keep"]  # type: ignore[attr-defined]


def test_a_server_that_does_not_go_on_is_named() -> None:
    with running(Stopping("/resume")) as server, pytest.raises(UserError, match=r"did not go on: http_404"):
        asyncio.run(update("pause", server.url))


def test_a_server_is_not_asked_for_what_it_cannot_do() -> None:
    with pytest.raises(UserError, match="cannot drain"):
        asyncio.run(update("drain", "http://127.0.0.1:9/v1", kind="sglang"))


def test_a_feed_without_servers_says_so() -> None:
    async def change() -> None:
        feed = GroupFeed("mcqa", model="scripted:serving:count_to_three")
        async with feed.updating(servers="drain"):
            pass

    with pytest.raises(UserError, match="has no servers that can drain"):
        asyncio.run(change())
