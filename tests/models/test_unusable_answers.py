"""Answers that a provider aborted are failures; answers that it filtered or left empty are masked."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import servers
from click.testing import CliRunner

import ludus
from ludus.cli import command_line
from ludus.response import Response

GONE = {"role": "assistant", "content": None}
SAID = {"role": "assistant", "content": "four"}


def completion(message: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"id": "x", "choices": [{"message": message, "finish_reason": reason}]}


def answering(server, content: dict[str, Any]) -> None:
    async def respond(path, body, writer):
        return await servers.send(writer, 200, orjson.dumps(content))

    server.respond = respond


def collected(server, counter, rows, content: dict[str, Any], api: str = "chat", **options: Any):
    answering(server, content)
    return ludus.collect(counter, model=f"{server.url}#m", input=rows(2), settings={"model.api": api}, **options)


@pytest.mark.parametrize("reason", ["abort", "insufficient_system_resource", "repetition"])
@pytest.mark.parametrize("message", [SAID, GONE])
def test_an_answer_that_ended_for_an_unknown_reason_is_a_failure(server, counter, rows, reason, message):
    result = collected(server, counter, rows, completion(message, reason))
    assert result.metrics["counts"] == {"dispatched": 2, "completed": 0, "failed": 2, "masked": 0}
    (error,) = {(each.error.stage, each.error.kind, each.error.cause) for each in result.rollouts}
    assert error == ("model", "aborted", f"the model's answer ended early, with the reason {reason!r}")
    assert all(each.reward is None for each in result.rollouts)


@pytest.mark.parametrize("details", [{"reason": "abort"}, {}, None])
def test_an_incomplete_response_without_a_known_reason_is_a_failure(server, counter, rows, details):
    content = {"id": "r", "status": "incomplete", "incomplete_details": details, "output": [servers.SAID]}
    result = collected(server, counter, rows, content, api="responses")
    assert result.metrics["counts"]["failed"] == 2
    assert {each.error.kind for each in result.rollouts} == {"aborted"}


@pytest.mark.parametrize(
    ("message", "reason", "mask"),
    [
        (SAID, "content_filter", "a content filter cut off the answer"),
        (GONE, "content_filter", "a content filter cut off the answer"),
        (GONE, "stop", "the last answer has no content"),
        ({"role": "assistant", "content": ""}, "stop", None),  # the model may say nothing
        (SAID, "length", None),
        (GONE, "length", None),
        (SAID, None, None),
        (SAID, "stop", None),
    ],
)
def test_filtered_and_empty_answers_are_masked(server, counter, rows, message, reason, mask):
    result = collected(server, counter, rows, completion(message, reason))
    counts = result.metrics["counts"]
    assert counts["masked" if mask else "completed"] == 2 == counts["dispatched"]
    assert {each.verdict.mask for each in result.rollouts} == {mask}
    assert {each.reward for each in result.rollouts} == {0.0}, "the reward is recorded beside the mask"


def test_scoring_again_keeps_the_mask(server, tmp_path):
    answering(server, completion(GONE, "stop"))
    model = f"{server.url}#m"
    ludus.collect("mcqa", model=model, limit=2, settings={"model.api": "chat"}, output=tmp_path)
    result = CliRunner().invoke(command_line(), ["verify", str(tmp_path / "rollouts.jsonl"), "--json"])
    found = orjson.loads(result.stdout)
    assert (found["unchanged"], found["changed"], found["masked"]) == (2, 0, 2)


async def test_an_aborted_reply_of_a_judge_is_a_failure_of_the_judge():
    from ludus.graders.judge import Judge

    class Aborted(ludus.Model):
        name = "m"

        async def respond(self, request: ludus.Request) -> Response:
            return Response.of(status="incomplete", incomplete_details={"reason": "abort"})

    with pytest.raises(ludus.Failure, match="the judge's reply ended early, with the reason 'abort'") as caught:
        await Judge(Aborted()).reply(ludus.Request("Is it right?"))
    assert caught.value.kind == "judge"


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress", "incomplete"])
def test_a_recorded_answer_that_is_none_is_a_failure_when_scored_again(tmp_path, status):
    rows = [{"responses_create_params": {"input": "2+2?"}, "expected_answer": "4"}]
    response = {"status": status, "output": [{**servers.SAID, "content": [{"type": "output_text", "text": "4"}]}]}
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(orjson.dumps({**rows[0], "response": response, "reward": 1.0}) + b"\n")
    result = CliRunner().invoke(command_line(), ["verify", str(file), "--env", "string_match", "--json"])
    found = orjson.loads(result.stdout)
    assert (found["failed"], result.exit_code) == (1, 1)


async def test_an_answer_of_any_model_that_failed_is_a_failure():
    class Failed(ludus.Model):
        name = "m"

        async def respond(self, request: ludus.Request) -> Response:
            return Response.of(servers.SAID, status="failed")

    result = await ludus.collect_async("mcqa", model=Failed(), limit=1)
    assert result.metrics["counts"]["failed"] == 1
