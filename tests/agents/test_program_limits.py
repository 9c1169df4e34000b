"""Limits of a program: a prompt beyond the model's context, and the tokens of the whole rollout."""

from __future__ import annotations

import asyncio
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from proxied import REQUESTS, proxied

import ludus
from ludus import Environment
from ludus.agents.command import CommandAgent
from ludus.model import Model, Request
from ludus.response import Response, message, prompt_too_long, texts_of
from ludus.rollout import Rollout
from ludus.tokens import Tokens

WHY = "the prompt has 5,000 tokens, the context 4,096"
ROWS = [{"responses_create_params": {"input": "add 3"}, "initial_count": 4, "expected_count": 4}]


class ShortSighted(Model):
    """Reads at most 200 characters. Its token ids are characters."""

    name = "short-sighted"

    async def respond(self, request: Request) -> Response:
        text = "".join(map(texts_of, request.input))
        if len(text) > 200:
            return Response.of(status="incomplete", incomplete_details=prompt_too_long(WHY))
        said = f"answer to {len(text)}"
        tokens = Tokens([*map(ord, text)], [*map(ord, said)], [-0.1] * len(said))
        return Response.of(message(said), tokens=tokens, usage={"total_tokens": 100})


#: Sends one question after another with the whole conversation, and `on_error` after a refused call.
CHATTY = """
import json, os, sys, urllib.error, urllib.request
url, key = os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"]
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
said = [{"role": "user", "content": "PROMPT"}]
for question in range(6):
    body = json.dumps({"model": "m", "messages": said}).encode()
    try:
        reply = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))
    except urllib.error.HTTPError as error:
        fault = json.load(error)["error"]
        ON_ERROR
        continue
    said += [reply["choices"][0]["message"], {"role": "user", "content": "More? " * LENGTH}]
"""


def collected(tmp_path: Path, on_error: str, *, length: int = 10, prompt: str = "add 3", **settings: Any) -> Rollout:
    source = CHATTY.replace("ON_ERROR", on_error).replace("LENGTH", str(length)).replace("PROMPT", prompt)
    program = tmp_path / "program.py"
    program.write_text(source)
    environment = Environment.load("example_session_state_mgmt")
    environment.agent = CommandAgent(CommandAgent.Config(command=[sys.executable, str(program)], **settings))
    (rollout,) = ludus.collect(environment, model=ShortSighted(), input=ROWS).rollouts
    return rollout


COMPACT = "assert fault['code'] == 'context_length_exceeded'; said = [*said[:2], {'role': 'user', 'content': 'On.'}]"


def test_a_program_that_compacts_goes_on_as_a_compacted_sequence(tmp_path: Path) -> None:
    rollout = collected(tmp_path, COMPACT)
    assert (rollout.stop_reason, rollout.reward) == ("completed", 1.0)
    assert [call.get("prompt_too_long") for call in rollout.calls] == [None] * 5
    assert [sequence.kind for sequence in rollout.sequences()] == ["main", "compacted"]
    assert rollout.response is not None
    assert rollout.response.status == "completed"


def test_a_program_that_compacts_and_still_reports_the_error_at_its_end_gets_its_verdict(tmp_path: Path) -> None:
    rollout = collected(tmp_path, COMPACT + "; import atexit; atexit.register(os._exit, 1)")
    assert (rollout.stop_reason, rollout.reward, rollout.error) == ("completed", 1.0, None)
    assert [sequence.kind for sequence in rollout.sequences()] == ["main", "compacted"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_program_that_ends_at_a_prompt_that_is_too_long_gets_its_verdict(tmp_path: Path, exit_code: int) -> None:
    rollout = collected(tmp_path, f"sys.exit({exit_code})")
    assert (rollout.stop_reason, rollout.reward, rollout.error) == ("max_output_tokens", 1.0, None)
    assert [call.get("prompt_too_long") for call in rollout.calls] == [None] * 3 + [WHY]
    assert rollout.response is not None
    assert rollout.response.output[-1]["role"] == "user", "what the model could not read is in the record"
    assert rollout.response.prompt_too_long == WHY


def test_a_first_prompt_that_is_too_long_is_a_rollout_without_an_answer(tmp_path: Path) -> None:
    rollout = collected(tmp_path, "sys.exit(3)", prompt="add 3" * 50)
    assert (rollout.stop_reason, rollout.reward) == ("max_output_tokens", 1.0)
    assert [call["prompt_too_long"] for call in rollout.calls] == [WHY]


def test_prompts_that_are_too_long_count_as_steps(tmp_path: Path) -> None:
    rollout = collected(tmp_path, "pass", max_steps=5)
    assert rollout.stop_reason == "max_steps"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_token_budget_ends_the_rollout_with_a_verdict(tmp_path: Path, exit_code: int) -> None:
    rollout = collected(tmp_path, f"sys.exit({exit_code})", length=1, token_budget=250)
    assert (rollout.stop_reason, rollout.reward) == ("token_budget", 1.0)
    assert len(rollout.calls) == 3, "the call that exceeds the budget is answered, the next one is refused"


def test_tokens_are_estimated_where_the_model_counts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(self: Model, request: Request) -> Response:
        return Response.of(message("x" * 400))

    monkeypatch.setattr(ShortSighted, "respond", respond)
    rollout = collected(tmp_path, "sys.exit(1)", token_budget=150)
    assert (rollout.stop_reason, len(rollout.calls)) == ("token_budget", 2)


WORDS = {
    "/v1/responses": "exceeds the context window",
    "/v1/chat/completions": "exceeds the context window",
    "/v1/messages": "prompt is too long",
    "/v1beta/models/m:generateContent": "input token count exceeds the maximum",
}


class Blind(Model):
    name = "blind"

    async def respond(self, request: Request) -> Response:
        return Response.of(status="incomplete", incomplete_details=prompt_too_long(WHY))


def test_every_dialect_says_in_its_own_words_that_a_prompt_is_too_long() -> None:
    with proxied(Blind()) as program:
        url = urlsplit(program.url)
        for path, words in WORDS.items():
            body = orjson.dumps({**REQUESTS[path], "stream": True})
            connection = HTTPConnection(str(url.hostname), url.port)
            connection.request("POST", path, body, {"authorization": f"Bearer {program.key}"})
            reply = connection.getresponse()
            error = orjson.loads(reply.read())["error"]
            connection.close()
            assert reply.status == 400, path
            assert words in error["message"]
            assert WHY in error["message"]
            assert error.get("code") in ("context_length_exceeded", 400) or error["type"] == "invalid_request_error"


def test_a_stall_says_that_a_program_waits_for_the_model_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.cli import progress

    monkeypatch.setattr(progress, "STALL", 0.3)
    monkeypatch.setattr(progress, "REFRESH", 0.05)
    display, told = progress.Display(), asyncio.Event()
    lines: list[str] = []

    async def respond(self: Model, request: Request) -> Response:
        await told.wait()
        return Response.of(message("late"))

    def say(line: str) -> None:
        lines.append(line)
        if "1 waits for the model" in line:
            told.set()

    monkeypatch.setattr(ShortSighted, "respond", respond)
    monkeypatch.setattr(display, "say", say)
    program = tmp_path / "program.py"
    program.write_text(CHATTY.replace("ON_ERROR", "pass").replace("LENGTH", "1").replace("PROMPT", "hi"))
    environment = Environment.load("example_session_state_mgmt")
    environment.agent = CommandAgent(CommandAgent.Config(command=[sys.executable, str(program)]))
    ludus.collect(environment, model=ShortSighted(), input=ROWS, watch=display.watch)
    (said,) = [line for line in lines if "1 waits for the model" in line]
    assert said.endswith("agent programs send long prompts. A model server is faster: --model vllm:URL#MODEL")
