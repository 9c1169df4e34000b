"""Servers that answer as a model: errors in the client's dialect, lists of models, counts, and compressed bodies."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_nemo_gym.in_process import send_request
from proxied import REQUESTS

from ludus import Failure, Response, ScriptedModel
from ludus.http.connection import HttpReply
from ludus.http.guard import Guard
from ludus.http.replies import chat_reply, gemini_reply, messages_reply, responses_reply
from ludus.model import Model, Request
from ludus.response import message
from ludus.serve.models import ModelApp

RESPONSES, CHAT, MESSAGES, GEMINI = REQUESTS


class Failing(Model):
    """Fails with the kind that it is given."""

    name = "failing"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def respond(self, request: Request) -> Response:
        raise Failure(self.kind, "no luck", stage="model")


def sent(
    method: str, path: str, body: Any = None, *, model: Model | None = None, guard: Guard | None = None, **headers: str
) -> HttpReply:
    """The reply of a model server."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    app = ModelApp(model or ScriptedModel(["Hello."] * 9), name="policy", guard=guard)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(send_request(app, method, path, content, named))


def error_of(path: str, reply: HttpReply) -> tuple[Any, ...]:
    """What an SDK of the path's dialect reads of an error."""
    body = reply.json()
    error = body["error"]
    if path == MESSAGES:
        assert body["type"] == "error"
        return reply.status, error["type"], error["message"]
    if path == GEMINI:
        assert error["code"] == reply.status
        return reply.status, error["status"], error["message"]
    assert error.keys() == {"message", "type", "param", "code"}
    return reply.status, error["type"], error["message"]


@pytest.mark.parametrize(
    ("kind", "status", "types"),
    [
        ("http_400", 400, ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT")),
        ("http_403", 403, ("invalid_request_error", "permission_error", "PERMISSION_DENIED")),
        ("http_404", 404, ("invalid_request_error", "not_found_error", "NOT_FOUND")),
        ("http_413", 413, ("invalid_request_error", "request_too_large", "INVALID_ARGUMENT")),
        ("http_429", 429, ("invalid_request_error", "rate_limit_error", "RESOURCE_EXHAUSTED")),
        ("timeout", 504, ("server_error", "timeout_error", "DEADLINE_EXCEEDED")),
        ("refused", 502, ("server_error", "api_error", "INTERNAL")),
        ("http_503", 503, ("server_error", "overloaded_error", "UNAVAILABLE")),
        ("http_529", 529, ("server_error", "overloaded_error", "INTERNAL")),
        ("bad_response", 500, ("server_error", "api_error", "INTERNAL")),
    ],
)
def test_a_failed_model_call_is_an_error_in_the_clients_dialect(kind: str, status: int, types: tuple[str, ...]):
    for path, expected in zip(REQUESTS, (types[0], *types), strict=True):
        reply = sent("POST", path, REQUESTS[path], model=Failing(kind))
        assert error_of(path, reply) == (status, expected, "no luck")
        assert (reply.json()["stage"], reply.json()["kind"]) == ("model", kind), "for clients of ours"


@pytest.mark.parametrize("path", REQUESTS)
def test_refusals_before_the_model_is_asked_are_in_the_clients_dialect(path: str):
    body = REQUESTS[path]
    guarded = Guard(token="secret", body_bytes=2000)
    assert error_of(path, sent("POST", path, body, guard=guarded))[0] == 401
    assert sent("POST", path, body, guard=guarded, x_api_key="secret").status == 200
    large = {**body, "padding": "x" * 3000}
    assert error_of(path, sent("POST", path, large, guard=guarded, x_api_key="secret"))[0] == 413
    assert error_of(path, sent("POST", path, b"{"))[0] == 400
    assert error_of(path, sent("POST", path, [1]))[:1] == (422,)
    assert error_of(path, sent("POST", path, body, guard=Guard(at_once=0)))[0] == 503
    assert error_of(path, sent("PUT", path, body))[0] in (404, 405)


def test_an_openai_error_names_the_field():
    error = sent("POST", RESPONSES, {"input": 3}).json()["error"]
    assert (error["param"], error["message"]) == ("input", "input: input must be a string or a list of items")


@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1/embeddings", "/v1beta/models/m:embedContent"])
def test_a_route_that_is_not_there_is_a_404_in_the_clients_dialect(path: str):
    reply = sent("POST", path, {})
    assert (reply.status, "error" in reply.json()) == (404, True)


def test_other_routes_keep_their_errors():
    assert sent("GET", "/nothing").json() == {"detail": "Not Found"}


async def test_a_stream_that_breaks_ends_with_an_error_of_the_dialect(monkeypatch: pytest.MonkeyPatch):
    from ludus.http import replies

    def breaking(*_: Any, **__: Any) -> Any:
        yield {"type": "ping"}
        raise Failure("bad_response", "the rest is missing")

    for name in ("response_events", "chat_chunks", "message_events", "gemini_chunks"):
        monkeypatch.setattr(replies, name, breaking)
    answer = {"id": "r", "output": [message("Hello.")]}
    streams = [
        responses_reply({"stream": True}, answer),
        chat_reply({"stream": True}, answer),
        messages_reply({"stream": True}, answer),
        gemini_reply(answer, streams=True, as_events=True),
    ]
    last = []
    for reply in streams:
        assert reply.pieces is not None
        pieces = [piece async for piece in reply.pieces]
        last.append(json.loads(pieces[-1].decode().partition("data: ")[2]))
    message_text = "the rest is missing"
    assert (last[0]["type"], last[0]["message"], last[0]["sequence_number"]) == ("error", message_text, 1)
    assert last[1]["error"]["message"] == message_text
    assert (last[2]["type"], last[2]["error"]["type"]) == ("error", "api_error")
    assert last[3]["error"]["status"] == "INTERNAL"


def test_models_are_listed_and_described_as_each_dialect_does():
    assert [model["id"] for model in sent("GET", "/v1/models").json()["data"]] == ["policy"]
    assert sent("GET", "/v1/models/any/name").json()["id"] == "any/name"
    anthropic = sent("GET", "/v1/models", anthropic_version="2023-06-01").json()
    assert (anthropic["data"][0]["type"], anthropic["has_more"]) == ("model", False)
    assert sent("GET", "/v1/models/m", anthropic_version="2023-06-01").json()["display_name"] == "m"
    assert sent("GET", "/v1beta/models").json()["models"][0]["name"] == "models/policy"
    assert sent("GET", "/v1beta/models/m").json()["name"] == "models/m"


class Counting(ScriptedModel):
    """Has a tokenizer of one token a word."""

    async def count_tokens(self, request: Request) -> int:
        return sum(len(item["content"].split()) for item in request.input)


def test_tokens_are_counted_with_the_models_tokenizer_or_estimated():
    asked = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 1}
    count = f"{MESSAGES}/count_tokens"
    assert sent("POST", count, asked, model=Counting(["a"])).json() == {"input_tokens": 3}
    assert sent("POST", count, asked).json() == {"input_tokens": 4}, "13 characters, four a token"
    gemini = {"contents": [{"parts": [{"text": "one two three"}]}]}
    for body in (gemini, {"generateContentRequest": gemini}):
        assert sent("POST", "/v1beta/models/m:countTokens", body).json() == {"totalTokens": 4}
    reply = sent("POST", f"{RESPONSES}/input_tokens", {"input": "one two three"}).json()
    assert reply == {"object": "response.input_tokens", "input_tokens": 4}
    tool = {"name": "look", "input_schema": {"type": "object"}}
    assert sent("POST", count, {**asked, "tools": [tool]}).json()["input_tokens"] > 10, "tools are part of a prompt"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_answers_without_a_key(method: str):
    assert sent(method, "/", guard=Guard(token="secret")).status == 200


def test_a_websocket_is_refused_at_once():
    reply = sent("GET", RESPONSES, guard=Guard(token="secret"), upgrade="websocket", connection="Upgrade")
    assert (reply.status, reply.header("connection")) == (426, "close")


def zstd(data: bytes) -> bytes:
    name = next(name for name in ("compression.zstd", "backports.zstd") if _is_there(name))
    compressed: bytes = importlib.import_module(name).compress(data)
    return compressed


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


HAS_ZSTD = _is_there("compression.zstd") or _is_there("backports.zstd")
NEEDS_ZSTD = pytest.mark.skipif(not HAS_ZSTD, reason="needs zstd: pip install 'ludus-gym[zstd]'")
ENCODINGS = [("gzip", gzip.compress), ("deflate", zlib.compress), pytest.param("zstd", zstd, marks=NEEDS_ZSTD)]


@pytest.mark.parametrize(("encoding", "compress"), ENCODINGS)
@pytest.mark.parametrize("path", REQUESTS)
def test_a_compressed_body_is_read_in_every_dialect(path: str, encoding: str, compress: Any):
    whole = json.dumps(REQUESTS[path]).encode()
    assert sent("POST", path, compress(whole), content_encoding=encoding).status == 200
    assert error_of(path, sent("POST", path, compress(whole)[:-3], content_encoding=encoding))[0] == 400
    assert error_of(path, sent("POST", path, b"no " + whole, content_encoding=encoding))[0] == 400


@pytest.mark.parametrize(("encoding", "compress"), ENCODINGS)
def test_a_body_that_decompresses_to_too_much_is_refused(encoding: str, compress: Any):
    bomb = compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    guard = Guard(body_bytes=100_000)
    status, _, text = error_of(CHAT, sent("POST", CHAT, bomb, guard=guard, content_encoding=encoding))
    assert (status, text) == (413, "the decompressed body is larger than 100000 bytes")
    parts = compress(b" " * 60_000) * 2
    assert sent("POST", CHAT, parts, guard=guard, content_encoding=encoding).status == 413


def test_other_encodings_are_refused_with_the_one_to_use(monkeypatch: pytest.MonkeyPatch):
    reply = sent("POST", CHAT, b"{}", content_encoding="br")
    assert (reply.status, reply.header("accept-encoding")) == (415, "gzip")
    import ludus.http.body_encoding as module

    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(module, "import_module", absent)
    status, _, text = error_of(CHAT, sent("POST", CHAT, b"{}", content_encoding="zstd"))
    assert status == 415
    assert "pip install" in text
    assert "[zstd]" in text


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "zstd", "br", "GZIP ", "\x7f"]))
def test_any_bytes_with_any_encoding_are_answered(body: bytes, encoding: str):
    assert sent("POST", CHAT, body, content_encoding=encoding).status in (400, 415, 422)
