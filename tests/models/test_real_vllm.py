"""The real vLLM, on the CPU: with its routes for ids open and closed (make test-vllm)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_vllm import PYTHON, save_weights, serving
from tiny_transformers import torch

import ludus
from ludus import Agent, Environment, Resources, Verdict
from ludus.collection.collection import Collection
from ludus.episode import Episode
from ludus.model import Request
from ludus.models import open_model
from ludus.response import Response, function_call_output

pytestmark = [
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_VLLM"), reason="needs minutes: make test-vllm"),
    pytest.mark.skipif(not PYTHON.exists(), reason="vLLM is not installed: make test-vllm"),
]

ADD = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"enum": [2, 3]}, "b": {"enum": [4, 5]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
#: A sampled token may only get another probability by the order of sums.
CLOSE = 1e-3


class Everything(Agent):
    """A forced call, its output, a turn that reaches its limit and goes on, a prefill that stops at a dot, an end."""

    async def act(self, episode: Episode) -> str:
        called = await episode.ask(tool_choice="required", max_output_tokens=200)
        assert called.function_calls, called.output
        episode.say(*[function_call_output(call["call_id"], "6") for call in called.function_calls])
        await episode.ask(max_output_tokens=4)
        await episode.ask(max_output_tokens=4)
        episode.say({"role": "user", "content": "Why?"})
        episode.say({"role": "assistant", "content": "Because the"})
        going_on = {"chat_template_kwargs": '{"continue_final_message": true}'}
        await episode.ask(metadata=going_on, stop=["."])
        episode.say({"role": "user", "content": "And one more?"})
        await episode.ask()
        return "completed"


class Nothing(Resources):
    async def verify(self, task: ludus.Task, response: Response) -> Verdict:
        return Verdict(0.0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("smollm2")
    return folder, save_weights(folder)[0]


@pytest.fixture(scope="module", params=["open", "closed"])
def server(request: pytest.FixtureRequest, weights: tuple[Path, Any]) -> Iterator[tuple[bool, str]]:
    """Whether the routes for ids are open, and the name of the model there."""
    is_open = request.param == "open"
    with serving(weights[0], *(["--enable-scale-out"] if is_open else [])) as url:
        yield is_open, f"vllm:{url}#policy"


def played(server: str, environment: Any, **options: Any) -> Collection:
    settings = {"temperature": 1.0, "logprobs": "sampled", "max_output_tokens": 24}
    return ludus.collect(environment, model=open_model(server, settings), tokens=True, **options)


def test_a_rollout_with_everything_is_one_sequence(server: tuple[bool, str], weights: tuple[Path, Any]) -> None:
    row = {"input": [{"role": "user", "content": "What are 2 and 4?"}], "tools": [ADD], "parallel_tool_calls": True}
    environment = replace(Environment.load(Nothing), agent=Everything())
    run = played(server[1], environment, input=[{"responses_create_params": row}], repeats=2)
    for rollout in run.rollouts:
        assert rollout.error is None
        assert len(rollout.calls) == 5
        (sequence,) = rollout.sequences()
        free = len(rollout.calls[0]["prompt_ids"]) + len(rollout.calls[0]["generated_ids"])  # of the grammar
        assert off(weights[1], sequence, free) < CLOSE
    assert run.metrics["broken_sequences"]["sequences"] == 0
    advised = any("--enable-scale-out" in warning for warning in run.metrics.get("warnings", ()))
    assert advised is not server[0]


@pytest.mark.parametrize("name", ["blackjack", "example_session_state_mgmt"])
def test_an_environment_is_one_sequence_a_rollout(
    name: str, server: tuple[bool, str], weights: tuple[Path, Any]
) -> None:
    run = played(server[1], name, limit=3)
    assert not run.metrics["failures"]
    for rollout in run.rollouts:
        (sequence,) = rollout.sequences()
        assert off(weights[1], sequence) < CLOSE


@pytest.mark.parametrize("how", ["pause", "drain"])
async def test_a_server_that_stops_goes_on(how: str, server: tuple[bool, str]) -> None:
    async with open_model(server[1], {"max_output_tokens": 40}) as model:
        model.capture_tokens = True
        asked = [asyncio.create_task(model.respond(Request("Count to 100", f"s{at}"))) for at in range(2)]
        await asyncio.sleep(0.5)
        async with model.servers_stopped(how):  # type: ignore[attr-defined]
            pass
        answers = await asyncio.gather(*asked)
        (stop,) = model.stats()["stops"]
    assert all(answer.tokens is not None for answer in answers)
    assert [each.get("error") for each in stop["stopped"]] == [None]


def off(model: Any, sequence: Any, start: int = 0) -> float:
    """The mean difference of the recorded log probabilities from those of the weights, from a position on."""
    with torch.no_grad():
        logits = model(torch.tensor([sequence.ids])).logits[0, :-1].float()
    computed = logits.log_softmax(-1).gather(1, torch.tensor(sequence.ids)[1:, None])[:, 0].tolist()
    found = [
        abs(logprob - recorded)
        for at, (logprob, recorded) in enumerate(zip(computed, sequence.logprobs[1:], strict=True), 1)
        if at >= start and sequence.mask[at]
    ]
    assert found
    return sum(found) / len(found)
