"""The proxy of programs, as the SDKs of three vendors see it: errors, lists, counts, retries."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import lazily
import pytest
from proxied import REQUESTS, proxied
from waiting import until

from ludus.agents.program_calls import ProgramCalls
from ludus.errors import Failure
from ludus.model import Model, Request
from ludus.response import Response, message

if TYPE_CHECKING:
    import anthropic
    import openai
    from google import genai
else:
    anthropic = lazily.imported("anthropic", "pip install 'ludus-gym[dev]'")
    openai = lazily.imported("openai", "pip install 'ludus-gym[dev]'")
    genai = lazily.imported("google.genai", "pip install 'ludus-gym[dev]'")

ASK: Any = [{"role": "user", "content": "hi"}]


class Policy(Model):
    """Answers with the number of the call. `failures` are raised first; calls wait for `may_answer`."""

    name = "policy"

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.asked: list[Request] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    async def respond(self, request: Request) -> Response:
        self.asked.append(request)
        number = len(self.asked)
        if self.failures:
            raise Failure(self.failures.pop(0), "no luck")
        from ludus.runtime.threads import in_thread

        await in_thread(self.may_answer.wait, 60)
        return Response.of(message(f"answer {number}"))


class Clients:
    """The SDKs of a program."""

    def __init__(self, program: ProgramCalls, key: str | None = None, retries: int = 0) -> None:
        key = key or program.key
        self.openai = openai.OpenAI(base_url=f"{program.url}/v1", api_key=key, max_retries=retries)
        self.anthropic = anthropic.Anthropic(base_url=program.url, api_key=key, max_retries=retries)
        options = genai.types.HttpOptions(
            base_url=program.url, retry_options=genai.types.HttpRetryOptions(attempts=retries + 1, initial_delay=0.01)
        )
        self.genai = genai.Client(api_key=key, http_options=options)

    def responses(self) -> str:
        return self.openai.responses.create(model="m", input="hi").output_text

    def chat(self) -> str:
        return str(self.openai.chat.completions.create(model="m", messages=ASK).choices[0].message.content)

    def messages(self) -> str:
        return getattr(self.anthropic.messages.create(model="m", max_tokens=9, messages=ASK).content[0], "text", "")

    def gemini(self) -> str:
        return str(self.genai.models.generate_content(model="m", contents="hi").text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in (self.openai, self.anthropic, self.genai):
            client.close()

    def all(self) -> list[Any]:
        return [self.responses, self.chat, self.messages, self.gemini]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy()


@pytest.fixture(scope="module")
def program(policy: Policy) -> Iterator[ProgramCalls]:
    with proxied(policy) as registered:
        yield registered


@pytest.fixture(scope="module")
def clients(program: ProgramCalls) -> Iterator[Clients]:
    with Clients(program) as made:
        yield made


def errors_of(clients: Clients) -> list[tuple[Any, str]]:
    """Status and message that each SDK reads of its error."""
    kinds: Any = (openai.APIStatusError, anthropic.APIStatusError, genai.errors.APIError)
    errors: list[Any] = []
    for call in clients.all():
        try:
            errors.append(f"no error, but {call()}")
        except kinds as error:
            errors.append(error)
    bodies = [getattr(error, "body", None) for error in errors]
    pairs = list(zip(errors, bodies, strict=True))
    texts = [body.get("error", body)["message"] if body else error.message for error, body in pairs]
    return [
        (getattr(error, "status_code", None) or error.code, text) for error, text in zip(errors, texts, strict=True)
    ]


def test_every_sdk_reads_the_status_and_the_message_of_a_failed_call(policy: Policy, clients: Clients):
    policy.failures = ["http_429"] * 4
    assert errors_of(clients) == [(429, "no luck")] * 4
    policy.failures = ["timeout"] * 4
    assert errors_of(clients) == [(504, "no luck")] * 4


def test_every_sdk_reads_a_refused_key_and_a_refused_call(program: ProgramCalls):
    with Clients(program, key="made-up") as strangers:
        assert errors_of(strangers) == [(401, "this key is not valid, or its rollout is over")] * 4
    with proxied(Policy(), max_calls=0) as over, Clients(over) as late:
        text = "this rollout has made all of its 0 model calls (agent.max_steps)"
        assert errors_of(late) == [(400, text)] * 4


@pytest.mark.parametrize("number", range(4), ids=["responses", "chat", "messages", "gemini"])
def test_an_sdk_that_retries_a_failed_call_gets_an_answer(number: int):
    policy = Policy("http_500", "http_503")
    with proxied(policy) as program, Clients(program, retries=2) as clients:
        assert clients.all()[number]() == "answer 3"


@pytest.mark.parametrize("number", range(4), ids=["responses", "chat", "messages", "gemini"])
def test_an_sdk_does_not_retry_what_the_models_server_refused(number: int):
    policy = Policy("http_400", "http_400")
    refused = pytest.raises(Exception, match="no luck")
    with proxied(policy) as program, Clients(program, retries=2) as clients, refused:
        clients.all()[number]()
    assert len(policy.asked) == 1


def test_the_sdks_list_models_and_count_tokens(clients: Clients):
    assert [model.id for model in clients.openai.models.list()] == ["policy"]
    assert clients.openai.models.retrieve("gpt-5").id == "gpt-5"
    assert [model.id for model in clients.anthropic.models.list()] == ["policy"]
    assert clients.anthropic.models.retrieve("claude").display_name == "claude"
    assert [model.name for model in clients.genai.models.list()] == ["models/policy"]
    assert clients.genai.models.get(model="m").name == "models/m"
    assert clients.anthropic.messages.count_tokens(model="m", messages=ASK).input_tokens == 1
    assert clients.genai.models.count_tokens(model="m", contents="hi").total_tokens == 1


def test_a_websocket_is_refused_and_its_connection_closed(program: ProgramCalls):
    place = urlsplit(program.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as connection:
        connection.sendall(
            b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
        )
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert received.startswith(b"HTTP/1.1 426 ")


def begun(program: ProgramCalls, path: str, body: bytes) -> HTTPConnection:
    """A connection with a request on it, whose reply is not read."""
    place = urlsplit(program.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    headers = {"Authorization": f"Bearer {program.key}", "Content-Type": "application/json"}
    connection.request("POST", path, body, headers)
    return connection


def ended(connection: HTTPConnection) -> bytes:
    reply = connection.getresponse()
    assert reply.status == 200
    body = reply.read()
    connection.close()
    return body


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_that_is_sent_again_on_a_new_connection_gets_the_first_answer(path: str):
    """No SDK's header says that it is a retry: the first connection is gone."""
    policy, body = Policy(), json.dumps(REQUESTS[path]).encode()
    policy.may_answer.clear()
    with proxied(policy) as program:
        begun_call = begun(program, path, body)
        until(lambda: policy.asked)
        begun_call.close()
        (call,) = program._calls.values()
        until(lambda: call.is_lost)
        again = begun(program, path, body)
        until(lambda: len(call.clients) == 2)
        policy.may_answer.set()
        assert b"answer 1" in ended(again)
        assert len(policy.asked) == 1
        assert b"answer 2" in ended(begun(program, path, body)), "the first answer was delivered: this is a new call"


@pytest.mark.parametrize("path", REQUESTS)
def test_an_answer_that_came_after_the_client_left_is_kept_for_its_retry(path: str):
    policy, body = Policy(), json.dumps(REQUESTS[path]).encode()
    policy.may_answer.clear()
    with proxied(policy) as program:
        lost = begun(program, path, body)
        until(lambda: policy.asked)
        lost.close()
        (call,) = program._calls.values()
        until(lambda: call.is_lost)
        policy.may_answer.set()
        until(lambda: call.answer.done())
        assert b"answer 1" in ended(begun(program, path, body))
        assert len(policy.asked) == 1
