"""Malformed answers of a provider never crash the collector and never get a reward."""

from __future__ import annotations

import copy
import random

import orjson
import pytest
import servers

import ludus

USAGE = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "output_tokens_details": {"reasoning_tokens": 1}}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
RESPONSE = {"id": "r", "status": "completed", "output": [THOUGHT, servers.CALL, servers.SAID], "usage": USAGE}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "increment_counter", "arguments": '{"count": 1}'}}]
SAID = {"role": "assistant", "content": "done", "reasoning_content": "hm", "tool_calls": CALLS}
LOGPROBS = {"content": [{"token": "token_id:7", "logprob": -0.5, "bytes": [1], "top_logprobs": []}]}
CHOICE = {"index": 0, "message": SAID, "finish_reason": "stop", "logprobs": LOGPROBS, "token_ids": [7]}
CHAT = {
    "id": "x",
    "choices": [CHOICE],
    "prompt_token_ids": [1, 2],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}
JUNK = [None, True, 0, -1, 10**18, 1e308, "", "\x00\ud7ff", "x" * 1000, [], {}, [[]], [None], {"a": 1}, [{"type": 5}]]


def paths(value, path=()):
    """The path of every value inside a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


def mutated(template, rng):
    """The template with a few values replaced, removed or added, sometimes truncated or very large."""
    value = copy.deepcopy(template)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(list(paths(value)))
        if not path:
            value = rng.choice([value, value, copy.deepcopy(rng.choice(JUNK))])
            continue
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        action = rng.random()
        if action < 0.25 and isinstance(holder, dict):
            del holder[path[-1]]
        elif action < 0.35 and isinstance(holder, dict):
            holder[f"extra_{rng.randint(0, 9)}"] = copy.deepcopy(rng.choice(JUNK))
        else:
            holder[path[-1]] = copy.deepcopy(rng.choice(JUNK))
    data = orjson.dumps(value)
    if rng.random() < 0.1:
        data = data[: rng.randint(0, len(data))]
    if rng.random() < 0.02:
        data = data.replace(b"done", b"x" * 10_000_000)
    return data


@pytest.mark.parametrize(("route", "template"), [("/v1/responses", RESPONSE), ("/v1/chat/completions", CHAT)])
def test_with_malformed_answers_every_rollout_is_completed_failed_or_masked(
    server, counter, rows, tmp_path, route, template
):
    rng = random.Random(11)

    async def respond(path, body, writer):
        data = mutated(template, rng) if rng.random() < 0.4 else orjson.dumps(template)
        return await servers.send(writer, 200 if path == route else 404, data)

    server.respond = respond
    api = "responses" if route.endswith("responses") else "chat"
    settings = {"model.api": api, "model.retries": 0, "limits.model": 20, "agent.max_steps": 3}
    result = ludus.collect(
        counter,
        model=f"{server.url}#m",
        input=rows(300),
        output=tmp_path,
        settings=settings,
        tokens=True,
        concurrency=4,
    )
    counts = result.metrics["counts"]
    assert counts["dispatched"] == 300 == counts["completed"] + counts["failed"] + counts["masked"]
    assert counts["failed"] > 30
    assert counts["completed"] + counts["masked"] > 30
    failures = [orjson.loads(line) for line in (tmp_path / "failures.jsonl").read_bytes().splitlines()]
    unexpected = {(row["stage"], row["kind"], row["where"], row["cause"][:200]) for row in failures} - {
        (row["stage"], row["kind"], row["where"], row["cause"][:200])
        for row in failures
        if (row["stage"], row["kind"]) == ("model", "bad_response")
    }
    assert not unexpected
    assert all("reward" not in row for row in failures)
    for line in (tmp_path / "rollouts.jsonl").read_bytes().splitlines():
        assert orjson.loads(line)["reward"] in (0.0, 1.0)
