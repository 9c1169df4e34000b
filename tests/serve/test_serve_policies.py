"""A policy that comes with a request: allowed by URL, kept for a while, and its key for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from servers import Server, running, send
from serving import COUNTER, COUNTER_ROW, Web, served, url_of
from yarl import URL

from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus.serve import policies

BAD = "sk-bad-key-of-somebody"
ALLOWED = "http://127.0.0.1:18801/v1/ok"


class Quoting(Server):
    """A model server that quotes the key it does not like."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if body["model"] == "quoting":
            return await send(writer, 401, b'{"error":{"message":"Incorrect API key provided: ' + BAD.encode() + b'"}}')
        return await super().respond(path, body, writer)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with running(Quoting()) as server:
        yield server.url


def test_many_policies_at_once_are_all_served_and_none_sees_the_key_of_another(upstream: str):
    async def ask(url: str) -> list[tuple[int, str]]:
        async with connect(url, "LUDUS_TEST_NO_TOKEN") as client:

            async def one(number: int) -> tuple[int, str]:
                policy = {"base_url": upstream, "model": "m", "api_key": f"sk-of-client-{number}"}
                reply = await client.post("/run", encode({**COUNTER_ROW, "policy": policy}))
                return reply.status, reply.body.decode()

            return await asyncio.gather(*(one(number) for number in range(3 * policies.KEPT)))

    with served(COUNTER, allow_policy=[upstream]) as serving:
        name = f"{COUNTER}_simple_agent"
        replies = asyncio.run(ask(url_of(serving, name)))
        kept = serving.apps[name]._policies  # type: ignore[attr-defined]
        assert len(kept._kept) <= policies.KEPT
        assert not kept._users
    assert {status for status, _ in replies} == {200}, replies[0]
    assert not any("sk-of-client" in text for _, text in replies)


def test_a_key_that_the_policy_quotes_is_cut_out(upstream: str):
    policy = {"base_url": upstream, "model": "quoting", "api_key": BAD}
    with served(COUNTER, allow_policy=[upstream]) as serving:
        refused = Web(url_of(serving, f"{COUNTER}_simple_agent")).post("/run", {**COUNTER_ROW, "policy": policy})
    assert refused.status >= 400
    assert "Incorrect API key provided: ***" in refused.text


@pytest.mark.parametrize(
    "url",
    [
        f"{ALLOWED}/../../admin",
        f"{ALLOWED}/%2e%2e/%2E%2E/admin",
        f"{ALLOWED}:1/x",
        f"{ALLOWED}ay",
        ALLOWED.replace("18801", "18802"),
        ALLOWED.replace("http:", "https:"),
        ALLOWED.replace("127.0.0.1", "127.0.0.1.evil"),
        ALLOWED.replace("127.0.0.1", "user@127.0.0.1"),
        f"{ALLOWED}?x=1",
        f"{ALLOWED}#m",
        "file:///etc/passwd",
        "",
    ],
)
def test_what_is_not_below_an_allowed_url_is_refused(url: str):
    policy = {"base_url": url, "model": "m"}
    with served(COUNTER, allow_policy=[ALLOWED]) as serving:
        web = Web(url_of(serving, f"{COUNTER}_simple_agent"))
        assert web.post("/run", {**COUNTER_ROW, "policy": policy}).status == 403


@pytest.mark.parametrize("prefix", ["http://h", "http://h:1", "http://h:1/v1", "http://h:1/v1/"])
def test_what_is_below_an_allowed_url_is_not(prefix: str):
    assert policies._is_under(URL("http://h:1/v1"), URL(prefix))
    assert policies._is_under(URL("http://H:1/v1/x/../y"), URL(prefix))
