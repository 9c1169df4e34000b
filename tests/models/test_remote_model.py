"""The model `remote:URL`: strict model servers accept its requests, and ours get what belongs to each call."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from servers import Server, answer, running, send
from serving import COUNTER, Web, served, url_of

from ludus.api import collect
from ludus.model import Request
from ludus.models import open_model
from ludus.response import Response

#: The fields that NeMo Gym's model servers accept. They refuse a request with any other field.
ACCEPTED = set(
    "background include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls "
    "previous_response_id prompt reasoning service_tier store stream temperature text tool_choice tools top_logprobs "
    "top_p truncation user".split()
)


class StrictServer(Server):
    """Refuses a request with an unknown field, as NeMo Gym's model servers do."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if unknown := body.keys() - ACCEPTED:
            detail = [{"type": "extra_forbidden", "loc": ["body", each]} for each in sorted(unknown)]
            return await send(writer, 422, orjson.dumps({"detail": detail}))
        return await super().respond(path, body, writer)


def test_a_strict_model_server_accepts_every_request():
    with running(StrictServer()) as server:
        found = collect(COUNTER, model=f"remote:{server.url.removesuffix('/v1')}", limit=2)
    assert [rollout.error for rollout in found.rollouts] == [None, None]


@pytest.mark.parametrize("session", ["row-1#0", "zwölf\r\nX-Injected: yes", "界" * 200, ""])
def test_our_model_server_gets_session_seed_and_turn_of_a_call(session: str):
    with served(COUNTER, model="scripted:serving:name_the_call") as serving:
        model = open_model(f"remote:{url_of(serving, 'policy_model')}")

        async def ask() -> Response:
            try:
                return await model.respond(Request("hi", session=session, seed=2**53, turn=3))
            finally:
                await model.stop()

        assert orjson.loads(asyncio.run(ask()).output_text) == [session, 2**53, 3]


def test_a_session_of_any_length_is_the_same_for_all_calls_of_a_rollout():
    with running(StrictServer()) as server:
        model = open_model(f"remote:{server.url}")

        async def ask() -> None:
            for turn in (0, 1):
                await model.respond(Request("hi", session="long" * 100_000, turn=turn))
            await model.stop()

        asyncio.run(ask())
    calls = [line for head in server.headers for line in head.split(b"\r\n") if line.startswith(b"x-ludus-call")]
    sessions = [orjson.loads(line.partition(b": ")[2])["session"] for line in calls]
    assert len(sessions) == 2
    assert len(set(sessions)) == 1
    assert len(sessions[0]) < 100


def test_our_model_server_sends_every_count_that_strict_clients_demand():
    with served(COUNTER, model="scripted:serving:count_tokens") as serving:
        reply = Web(url_of(serving, "policy_model")).post("/v1/responses", {"input": "hi"}).json()
    assert reply["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10,
    }


class CookieServer(Server):
    """Knows a client by the cookie that it sets in the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = 0

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        self.bodies.append(body)
        self.clients += 1
        content = orjson.dumps(answer(body))
        cookie = b"set-cookie: client=%d; Path=/; HttpOnly\r\n" % self.clients
        writer.write(b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%b" % (cookie, len(content), content))
        await writer.drain()
        return True


def test_each_rollout_sends_back_its_own_cookies_and_no_others():
    with running(CookieServer()) as server:
        model = open_model(f"remote:{server.url}")

        async def ask() -> None:
            for session in ("a", "b", "a", "b"):
                await model.respond(Request("hi", session=session))
            model.forget("a")
            await model.respond(Request("hi", session="a"))
            await model.stop()

        asyncio.run(ask())
    lines = [[line for line in head.split(b"\r\n") if line.lower().startswith(b"cookie")] for head in server.headers]
    assert lines == [[], [], [b"Cookie: client=1"], [b"Cookie: client=2"], []]


@pytest.mark.parametrize("header", ["", "x", "[1]", '{"seed": "7", "turn": null, "session": 3}', "{" * 5000])
def test_a_wrong_call_header_is_ignored(header: str):
    with served(COUNTER, model="scripted:serving:name_the_call") as serving:
        reply = Web(url_of(serving, "policy_model")).post("/v1/responses", {"input": "hi"}, {"x-ludus-call": header})
    assert reply.status == 200
    assert orjson.loads(reply.json()["output"][0]["content"][0]["text"]) == [None, None, 0]
