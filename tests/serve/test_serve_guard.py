"""The guard of the servers: a web page cannot use a server without a token, and nothing is read before the check."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import COUNTER, COUNTER_ROW, Web, served, url_of
from waiting import CEILING

from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Refusal
from ludus.serve.serving import Serving

AGENT = f"{COUNTER}_simple_agent"
FORM_TYPES = ("text/plain", "text/plain; application/json", "multipart/form-data", "application/x-www-form-urlencoded")


@pytest.fixture(autouse=True, scope="module")
def _no_token() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LUDUS_TOKEN", raising=False)
        yield


@pytest.fixture(scope="module")
def serving(_no_token: None) -> Iterator[Serving]:
    pytest.importorskip("mcp")
    with served(COUNTER, mcp=True) as running:
        yield running


def addresses(serving: Serving) -> dict[str, str]:
    """A POST that each server answers, by the URL of the server."""
    paths = {COUNTER: "/seed_session", AGENT: "/run", "policy_model": "/v1/responses"}
    return {url_of(serving, name): path for name, path in paths.items()}


def exchange(url: str, head: str, body: bytes = b"") -> bytes:
    """Send a request as it is written here, and return the first line and the body of the reply."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CEILING) as connection:
        lines = head.replace("ADDRESS", parts.netloc).split("\n")
        connection.sendall("\r\n".join([*lines, "connection: close", "", ""]).encode() + body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_post_whose_body_is_not_declared_as_json_is_refused_by_every_server(serving: Serving):
    for url, path in [*addresses(serving).items(), (url_of(serving, COUNTER), "/mcp"), (serving.head_url, "/run")]:
        for kind in FORM_TYPES:
            reply = Web(url).post(path, COUNTER_ROW, {"Content-Type": kind})
            assert reply.status == 415, (path, kind)
            assert "Content-Type: application/json" in reply.text
        head = f"POST {path} HTTP/1.1\nhost: ADDRESS\ncontent-length: 2"
        assert b" 415 " in exchange(url, head, b"{}")[:20], "no type, as from a Blob without one"
        chunked = f"POST {path} HTTP/1.1\nhost: ADDRESS\ntransfer-encoding: chunked"
        assert b" 415 " in exchange(url, chunked, b"2\r\n{}\r\n0\r\n\r\n")[:20]


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_accepted_in_every_spelling(serving: Serving, kind: str):
    reply = Web(url_of(serving, AGENT)).post("/run", COUNTER_ROW, {"Content-Type": kind})
    assert (reply.status, reply.json()["reward"]) == (200, 1.0)


def test_a_post_without_a_body_needs_no_type(serving: Serving):
    url = url_of(serving, COUNTER)
    session = Web(url).post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]
    for length in ("\ncontent-length: 0", ""):
        head = f"POST /get_counter_value HTTP/1.1\nhost: ADDRESS\nx-ludus-session: {session}{length}"
        assert exchange(url, head).endswith(b'{"count":1}')


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "http://localhost", "null"])
def test_a_page_of_another_origin_is_refused_by_every_server(serving: Serving, origin: str):
    for url, path in [*addresses(serving).items(), (url_of(serving, COUNTER), "/mcp")]:
        assert Web(url).post(path, COUNTER_ROW, {"Origin": origin}).status == 403
    head = f"GET /server_instances HTTP/1.1\nhost: ADDRESS\norigin: {origin}"
    assert b" 403 " in exchange(serving.head_url, head)[:20]


def test_a_page_of_the_server_itself_is_answered(serving: Serving):
    url = url_of(serving, COUNTER)
    assert Web(url).post("/seed_session", COUNTER_ROW, {"Origin": url}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil", ""])
def test_a_host_that_is_not_loopback_is_refused_by_every_server(serving: Serving, host: str):
    for url in [*addresses(serving), serving.head_url]:
        for path in ("/", "/health", "/metrics", "/server_instances", "/mcp"):
            assert b" 421 " in exchange(url, f"GET {path} HTTP/1.1\nhost: {host}")[:20]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:9"])
def test_each_name_of_loopback_is_answered(serving: Serving, host: str):
    assert b" 200 " in exchange(url_of(serving, COUNTER), f"GET /metrics HTTP/1.1\nhost: {host}")[:20]


def test_a_server_with_a_token_checks_only_the_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TOKEN", "a-token-for-tests-only")
    with served(COUNTER, resources_only=True) as running:
        head = "GET /metrics HTTP/1.1\nhost: proxy.example\norigin: https://proxy.example"
        assert b" 200 " in exchange(url_of(running, COUNTER), f"{head}\nx-api-key: a-token-for-tests-only")[:20]
        assert b" 401 " in exchange(url_of(running, COUNTER), head)[:20]


headers = st.lists(
    st.tuples(
        st.sampled_from([b"host", b"origin", b"content-type", b"content-length", b"transfer-encoding", b"cookie"]),
        st.binary(max_size=20) | st.sampled_from([b"localhost:1", b"http://localhost:1", b"application/json", b"2"]),
    ),
    max_size=8,
)


@given(headers)
def test_whatever_is_admitted_has_our_host_our_origin_and_json(found: list[tuple[bytes, bytes]]):
    scope: dict[str, Any] = {"headers": found}
    try:
        Guard().admit(Incoming(scope, None, "POST", "/run"))  # type: ignore[arg-type]
    except Refusal:
        return
    given = dict(found)
    assert given[b"host"].lower().startswith((b"localhost", b"127.0.0.1", b"[::1]"))
    assert given.get(b"origin", b"") in (b"", b"http://" + given[b"host"])
    sent = b"transfer-encoding" in given or given.get(b"content-length", b"0") != b"0"
    assert not sent or given[b"content-type"].lower().startswith(b"application/json")


def test_a_worker_checks_the_token_before_it_reads_the_body_of_another_workers_session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TOKEN", "a-token-for-tests-only")
    with served(COUNTER, resources_only=True, workers=2) as running:
        parts = urlsplit(url_of(running, COUNTER))
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CEILING) as connection:
            for owner in (0, 1):  # one connection stays with one worker, so the session of one owner is not its own
                session = f"x-ludus-session: {owner}.made-up"
                head = f"POST /verify HTTP/1.1\r\nhost: x\r\n{session}\r\ncontent-length: 4\r\n\r\n"
                connection.sendall(head.encode())
                reply = b""
                while not reply.endswith(b"}"):  # it comes although no body was sent
                    reply += connection.recv(10_000)
                assert b" 401 " in reply[:20]
                connection.sendall(b"null")


def test_the_slow_body_of_an_mcp_request_is_refused_like_any_other(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving.apps[COUNTER].guard, "body_seconds", 0.3)
    head = "POST /mcp HTTP/1.1\nhost: ADDRESS\ncontent-type: application/json\ncontent-length: 100"
    assert b" 408 " in exchange(url_of(serving, COUNTER), head, b"{")[:20]


def test_the_large_body_of_an_mcp_request_is_refused_like_any_other(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving.apps[COUNTER].guard, "body_bytes", 10)
    head = "POST /mcp HTTP/1.1\nhost: ADDRESS\ncontent-type: application/json\ncontent-length: 11"
    assert b" 413 " in exchange(url_of(serving, COUNTER), head, b"x" * 11)[:20]
