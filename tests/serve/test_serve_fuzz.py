"""A model server answers or refuses any body, in each of its three dialects, and never crashes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from conversations import TOKENS, Json, broken, conversations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ludus_nemo_gym.in_process import ask
from test_messages_conversion import BODY as MESSAGES

from ludus.dialects.chat import to_chat, to_messages
from ludus.errors import Failure
from ludus.http.guard import Guard
from ludus.model import Model, Request
from ludus.response import Response, function_call, message, reasoning
from ludus.serve.models import ModelApp
from ludus.tokens import Tokens

RESPONSES, CHAT, ANTHROPIC = "/v1/responses", "/v1/chat/completions", "/v1/messages"
GEMINI = "/v1beta/models/m:generateContent"
ROUTES = (RESPONSES, CHAT, ANTHROPIC, GEMINI)
FUZZ = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


class Answering(Model):
    """Encodes each request as a client of an endpoint would, and answers with one item of every kind."""

    name = "answering"

    async def respond(self, request: Request) -> Response:
        orjson.dumps(to_chat(request.input, {"model": "m", **request.params}))
        orjson.dumps(request.input.encoded())
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        items = (reasoning("hm"), message("Hello."), function_call("look", {"at": "it"}, call_id="call_1"))
        return Response.of(*items, usage=usage, tokens=Tokens([1, 2, 3], [4, 5], [-0.1, -0.2]))


class Failing(Model):
    """Fails with `http_500`."""

    name = "failing"

    async def respond(self, request: Request) -> Response:
        raise Failure("http_500", "it is down")


class Said(Model):
    """Answers with `data`, which may be no valid response."""

    name = "said"

    def __init__(self, data: Any) -> None:
        self.data = data

    async def respond(self, request: Request) -> Response:
        return Response.checked(self.data, Tokens([1], [2], [-0.1]))


TOOL = {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}, "strict": True}
RESPONSES_FIELDS: Json = {
    "model": "m",
    "instructions": "Be brief.",
    "tools": [{"type": "function", **TOOL}],
    "tool_choice": {"type": "function", "name": "look"},
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "max_output_tokens": 5,
    "temperature": 0.5,
    "metadata": {"a": "b"},
    "stream_options": {"include_usage": True},
}
CHAT_FIELDS: Json = {
    "model": "m",
    "tools": [{"type": "function", "function": TOOL}],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    "stream_options": {"include_usage": True},
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "max_tokens": 5,
    "max_completion_tokens": 6,
    "logprobs": True,
    "n": 1,
    "stop": ["END"],
    "functions": None,
}
GEMINI_FIELDS: Json = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "tools": [{"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT", "nullable": True}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
    "generationConfig": {"temperature": 0.5, "stopSequences": ["END"], "thinkingConfig": {"thinkingLevel": "LOW"}},
}
CONTENTS = [
    {"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
    {"role": "model", "parts": [{"text": "hm", "thought": True}, {"functionCall": {"name": "look", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "it"}}}]},
]


@st.composite
def bodies(draw: Any, path: str) -> Json:
    """Valid requests: a conversation and some fields of the dialect, streamed or not."""
    if path == ANTHROPIC:
        body = {"messages": MESSAGES["messages"][: draw(st.integers(1, 3))]}
    elif path == GEMINI:
        body = {"contents": CONTENTS[: draw(st.integers(1, 3))]}
    elif path == CHAT:
        body = {"messages": to_messages(draw(conversations())) or [{"role": "user", "content": "hi"}]}
    else:
        body = {"input": draw(st.text() | conversations())}
    fields = {RESPONSES: RESPONSES_FIELDS, CHAT: CHAT_FIELDS, ANTHROPIC: MESSAGES, GEMINI: GEMINI_FIELDS}[path]
    for key in draw(st.lists(st.sampled_from(sorted(fields)), unique=True)):
        body.setdefault(key, fields[key])
    return {**body, "stream": draw(st.booleans())}


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def status_of(runner: asyncio.Runner, path: str, body: bytes, model: Model | None = None) -> int:
    """The status of a reply, after a check of its body."""
    status, answer = runner.run(ask(ModelApp(model or Answering()), path, body))
    if status != 200:
        assert json.loads(answer)["error"]["message"]
    elif not answer.startswith((b"data: ", b"event: ")):
        assert json.loads(answer)["responseId" if path == GEMINI else "id"]
    return status


@pytest.mark.parametrize("path", ROUTES)
def test_a_valid_request_is_answered(runner: asyncio.Runner, path: str):
    @FUZZ
    @given(bodies(path))
    def answers(body: Json) -> None:
        assert status_of(runner, path, json.dumps(body).encode()) == 200
        assert status_of(runner, path, json.dumps(body).encode(), Failing()) == 500

    answers()


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_with_junk_in_it_is_answered_or_refused(runner: asyncio.Runner, path: str):
    @FUZZ
    @given(bodies(path).flatmap(broken))
    def answers(body: Any) -> None:
        assert status_of(runner, path, json.dumps(body).encode()) in (200, 400, 422)

    answers()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_malformed_response_of_the_model_is_never_a_4xx(runner: asyncio.Runner, path: str, stream: bool):
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "input_tokens_details": {"cached_tokens": 1}}
    items = (reasoning("hm"), message("Hello."), function_call("look", {"at": "it"}, call_id="call_1"))
    asked = {"input": "hi", "messages": [{"role": "user", "content": "hi"}], "contents": CONTENTS, "stream": stream}

    @FUZZ
    @given(broken(Response.of(*items, usage=usage, incomplete_details=None, error=None).data))
    def answers(data: Any) -> None:
        assert status_of(runner, path, json.dumps(asked).encode(), Said(data)) in (200, 500)

    answers()


@pytest.mark.parametrize("missing", sorted(TOKENS))
def test_a_message_with_only_some_of_the_token_fields_is_refused(runner: asyncio.Runner, missing: str):
    incomplete = {"role": "assistant", "content": "hi", **{key: TOKENS[key] for key in TOKENS if key != missing}}
    assert status_of(runner, RESPONSES, json.dumps({"input": [incomplete]}).encode()) == 422
    assert status_of(runner, CHAT, json.dumps({"messages": [incomplete]}).encode()) == 422


@pytest.mark.parametrize("path", ROUTES)
def test_a_body_that_is_not_json_is_refused(runner: asyncio.Runner, path: str):
    @FUZZ
    @given(st.binary() | bodies(path).map(lambda body: json.dumps(body).encode()[:-1]))
    def answers(body: bytes) -> None:
        assert status_of(runner, path, body) in (400, 422)

    answers()


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("depth", [150, 250, 1_000, 100_000])
def test_deep_nesting_is_refused(runner: asyncio.Runner, path: str, depth: int):
    start = '{"input":"hi","messages":[{"role":"user","content":"hi"}],"contents":[]'
    found = set()
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        nested = opening * depth + "1" + closing * depth
        for field in ("input", "messages", "tools", "metadata", "tool_choice", "anything"):
            found.add(status_of(runner, path, f'{start},"{field}":{nested}}}'.encode()))
        body = f'{{"input":[{{"role":"user","content":{nested}}}],"messages":[{{"role":"user","content":{nested}}}]}}'
        found.add(status_of(runner, path, body.encode()))
    assert found <= ({200, 400, 422} if depth < 200 else {400, 422})


def test_a_body_above_the_size_limit_is_refused(runner: asyncio.Runner):
    app = ModelApp(Answering(), guard=Guard(body_bytes=100))
    assert runner.run(ask(app, RESPONSES, b'{"input": "' + b"a" * 200 + b'"}'))[0] == 413
