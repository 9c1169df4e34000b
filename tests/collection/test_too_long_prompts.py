"""A prompt beyond the model's context gets an empty answer, and the table, the metrics and `ludus show` say why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked
import orjson
import servers

import ludus

MESSAGE = "This model's maximum context length is 4096 tokens, and the prompt has 5000"


def refusing(server):
    """A server that refuses every other prompt as too long."""
    answer = server.respond

    async def respond(path, body, writer):
        if "Question 1" not in str(body):
            return await answer(path, body, writer)
        text = orjson.dumps({"error": {"message": MESSAGE, "code": "context_length_exceeded"}})
        return await servers.send(writer, 400, text)

    server.respond = respond
    return server


def test_rollouts_whose_prompt_is_too_long_are_counted_with_the_models_words(server, counter, rows):
    result = ludus.collect(counter, model=f"{refusing(server).url}#m", input=rows(2), repeats=2)
    assert result.metrics["prompts_too_long"] == {"rollouts": 2, "first": MESSAGE}
    assert result.metrics["counts"]["failed"] == 0
    long = [rollout for rollout in result.rollouts if rollout.job.row["number"] == 1]
    assert [rollout.calls for rollout in long] == [[{"items": 0, "prompt_too_long": MESSAGE}]] * 2
    assert [rollout.stop_reason for rollout in long] == ["max_output_tokens"] * 2


def test_a_run_without_such_prompts_counts_none(server, counter, rows):
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(2))
    assert result.metrics["prompts_too_long"] == {"rollouts": 0, "first": None}


def run(*words: str, cwd: Path) -> str:
    variables = {**os.environ, "COLUMNS": "140", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "ludus", *words]
    done = forked.run(command, cwd=cwd, capture_output=True, text=True, env=variables, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_table_and_show_say_that_a_prompt_is_too_long(server, rows, tmp_path):
    given = [{**row, "initial_count": 0, "expected_count": 1} for row in rows(2)]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(orjson.dumps, given)))
    words = ("--input", "rows.jsonl", "--model", f"{refusing(server).url}#m", "--output", "out")
    table = run("collect", "example_session_state_mgmt", *words, cwd=tmp_path)
    assert f"1 rollout got no answer: {MESSAGE}" in table
    shown = run("show", "out", "--json", cwd=tmp_path)
    numbers = [row["number"] for row in orjson.loads(shown) if row["end"] == "max_output_tokens"]
    assert f"the prompt is too long: {MESSAGE}" in run("show", "out", str(numbers[0]), cwd=tmp_path)


def test_a_resumed_run_counts_the_recorded_ones_too(server, counter, rows, tmp_path):
    options = {"model": f"{refusing(server).url}#m", "input": rows(2), "output": tmp_path / "out"}
    ludus.collect(counter, **options)
    more = ludus.collect(counter, **options, resume=True, repeats=2)
    assert more.metrics["prompts_too_long"] == {"rollouts": 2, "first": MESSAGE}
