"""A server that is no model server, or a hostile one: every call ends in time with a failure that says what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from raw_server import Script, read_request, serving

import ludus
from ludus import Resources, UserError


class Plain(Resources):
    """Gives every answer the reward 1."""

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


def sends(*parts: bytes, forever: bytes = b"", pause: float = 0.0) -> Script:
    """A script that answers every request with these parts, and then without end with another one."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(b"".join(parts))
            while forever:
                writer.write(forever)
                await writer.drain()
                await asyncio.sleep(pause)

    return script


def whole(body: bytes, status: bytes = b"200 OK", *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, lines, len(body), body)


async def ask(script: Script, **settings: Any) -> ludus.Rollout:
    """The rollout of one call to a server."""
    retries = {"server": 0, "busy": 0, "dropped": 0, "fresh": 0}
    async with serving(script) as (port, _):
        options = {"limits.model": 2, "model.retries": retries, "model.max_reply_bytes": 1 << 20, **settings}
        rows = [{"responses_create_params": {"input": "hi"}}]
        stream = ludus.stream(Plain, model=f"http://127.0.0.1:{port}/v1#m", input=rows, settings=options)
        (rollout,) = [rollout async for rollout in stream]
        return rollout


PAGE = b"<!DOCTYPE html>\n<html><body>Welcome</body></html>"
NO_SERVER = "a web page (HTML), so this is not a model server: check model.base_url"


async def test_a_server_that_sends_a_web_page_is_named_as_no_model_server():
    rollout = await ask(sends(whole(PAGE)))
    assert rollout.error is not None
    assert NO_SERVER in rollout.error.cause
    with pytest.raises(UserError) as caught:
        await ask(sends(whole(PAGE, b"404 Not Found")))
    assert NO_SERVER in str(caught.value)
    rollout = await ask(sends(whole(PAGE, b"501 Unsupported method")))  # of a server of files
    assert rollout.error is not None
    assert NO_SERVER in rollout.error.cause
    rollout = await ask(sends(whole(PAGE, b"502 Bad Gateway")))  # of a proxy: the model server behind it is down
    assert rollout.error is not None
    assert (rollout.error.kind, NO_SERVER in rollout.error.cause) == ("http_502", False)


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"xxxxxxxx"}}]}\n\n' * 200
HOSTILE: dict[str, tuple[Callable[[], Script], str]] = {
    "a byte now and then": (lambda: sends(HEAD, b"content-length: 9999\r\n\r\n", forever=b"x", pause=0.05), "timeout"),
    "a header now and then": (lambda: sends(HEAD, forever=b"a: b\r\n", pause=0.05), "timeout"),
    "pings without end": (lambda: sends(CHUNKED, forever=b"8\r\n: ping\n\n\r\n", pause=0.01), "timeout"),
    "headers without end": (lambda: sends(HEAD, forever=b"a: b\r\n" * 999), "too_large"),
    "interim replies without end": (lambda: sends(forever=b"HTTP/1.1 103 E\r\na: b\r\n\r\n" * 99), "too_large"),
    "events without end": (lambda: sends(CHUNKED, forever=b"%x\r\n%b\r\n" % (len(EVENT), EVENT)), "too_large"),
    "a chunk without end": (lambda: sends(CHUNKED + b"ffffffffffffffff\r\n", forever=b"x" * 65536), "too_large"),
    "a negative chunk": (lambda: sends(CHUNKED + b"-5\r\nxxxxx"), "disconnected"),
    "two lengths": (lambda: sends(HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}"), "disconnected"),
    "a redirect": (lambda: sends(whole(b"", b"302 Found", b"location: http://127.0.0.1:1/")), "http_302"),
    "another protocol": (lambda: sends(b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"), "disconnected"),
    "no UTF-8": (lambda: sends(whole(b'{"output":[{"type":"message","content":"\xff"}]}')), "bad_response"),
    "deep JSON": (lambda: sends(whole(b'{"output":' + b"[" * 5000 + b"]" * 5000 + b"}")), "bad_response"),
    "a long integer": (lambda: sends(whole(b'{"output":[],"usage":' + b"9" * 5000 + b"}")), "bad_response"),
    "no object": (lambda: sends(whole(b"null")), "bad_response"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_hostile_reply_is_a_failure_without_a_reward(name: str, stream: bool):
    script, kind = HOSTILE[name]
    rollout = await ask(script(), **{"model.stream": stream, "model.api": "chat"})
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.reward) == ("model", None)
    assert rollout.error.kind == kind
