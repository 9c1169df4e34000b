"""A policy in a request: its URL must be allowed, its connection is kept for a while, and its key is never shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from servers import Server, running, send
from serving import COUNTER, COUNTER_ROW, Web, served, url_of

from ludus.remote.http import connect
from ludus.runtime.encoding import encode
from ludus.serve import policies

REFUSED_KEY = "sk-bad-key-of-somebody"
ALLOWED = "http://127.0.0.1:18801/v1/ok"


class Quoting(Server):
    """A model server that quotes the key that it refuses."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if body["model"] == "quoting":
            refusal = f'{{"error":{{"message":"Incorrect API key provided: {REFUSED_KEY}"}}}}'
            return await send(writer, 401, refusal.encode())
        return await super().respond(path, body, writer)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with running(Quoting()) as server:
        yield server.url


def test_many_concurrent_policies_are_served_and_no_reply_contains_a_key(upstream: str):
    async def ask(url: str) -> list[tuple[int, str]]:
        async with connect(url, "LUDUS_TEST_NO_TOKEN") as client:

            async def one(number: int) -> tuple[int, str]:
                policy = {"base_url": upstream, "model": "m", "api_key": f"sk-of-client-{number}"}
                reply = await client.post("/run", encode({**COUNTER_ROW, "policy": policy}))
                return reply.status, reply.body.decode()

            return await asyncio.gather(*(one(number) for number in range(3 * policies.MOST_MODELS)))

    with served(COUNTER, allow_policy=[upstream]) as serving:
        name = f"{COUNTER}_simple_agent"
        replies = asyncio.run(ask(url_of(serving, name)))
        kept = serving.apps[name]._policies  # type: ignore[attr-defined]
        assert len(kept._models) <= policies.MOST_MODELS
        assert not kept._users
    assert {status for status, _ in replies} == {200}, replies[0]
    assert not any("sk-of-client" in text for _, text in replies)


def test_a_key_that_the_policys_server_quotes_is_masked(upstream: str):
    policy = {"base_url": upstream, "model": "quoting", "api_key": REFUSED_KEY}
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
def test_a_policy_url_outside_the_allowed_ones_is_refused(url: str):
    policy = {"base_url": url, "model": "m"}
    with served(COUNTER, allow_policy=[ALLOWED]) as serving:
        web = Web(url_of(serving, f"{COUNTER}_simple_agent"))
        assert web.post("/run", {**COUNTER_ROW, "policy": policy}).status == 403


@pytest.mark.parametrize("prefix", ["http://h", "http://h:1", "http://h:1/v1", "http://h:1/v1/"])
def test_a_policy_url_under_an_allowed_one_is_accepted(prefix: str):
    async def use(url: str) -> None:
        async with policies.Policies((prefix,), tokens=False).use({"base_url": url, "model": "m"}) as model:
            assert model is not None

    asyncio.run(use("http://h:1/v1"))
    asyncio.run(use("http://H:1/v1/x/../y"))
