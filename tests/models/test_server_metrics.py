"""What servers say on /metrics: each server's own names, hostile text, and servers that say nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import Server, running, send

from ludus.model import Model, ServerLoad
from ludus.models import open_model
from ludus.models.server_metrics import read_server_load

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"} 9 b"} 12.0
vllm:num_requests_running{engine="1",model_name="b"} 4.0
vllm:num_requests_waiting{engine="0",model_name="b"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="b"} 0.75
vllm:num_preemptions_total{engine="0",model_name="b"} 2.0
vllm:num_preemptions_created{engine="0",model_name="b"} 1.7e+09
vllm:prefix_cache_queries_total{engine="0",model_name="b"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="b"} 970.0
vllm:generation_tokens_total{engine="0",model_name="b"} 5e3
"""
SGLANG = """\
sglang:num_running_reqs{model_name="m"} 5.0
sglang:num_queue_reqs{model_name="m"} 0.0
sglang:token_usage{model_name="m"} 0.28
sglang:num_retracted_requests_total{model_name="m"} 1.0
sglang:prompt_tokens_total{model_name="m"} 80.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 40.0
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
"""
LLAMA = "llamacpp:requests_processing 2\r\nllamacpp:requests_deferred 1\r\nllamacpp:tokens_predicted_total 70\r\n"


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, ServerLoad(16, 3, 0.75, 2, 1000, 970, 5000)),
        (SGLANG, ServerLoad(5, 0, 0.28, 1, 80, 40, 7557572)),
        (LLAMA, ServerLoad(2, 1, generated=70)),
        (VLLM.replace("kv_cache", "gpu_cache"), ServerLoad(16, 3, 0.75, 2, 1000, 970, 5000)),
    ],
)
def test_each_server_is_read_by_its_own_names(text: str, load: ServerLoad) -> None:
    assert read_server_load(text) == load


@pytest.mark.parametrize(
    ("line", "load"),
    [
        ("vllm:num_requests_waiting nan", ServerLoad(1)),
        ("vllm:num_requests_waiting -1", ServerLoad(1)),
        ("vllm:kv_cache_usage_perc 55", ServerLoad(1)),
        ("vllm:num_preemptions_total +Inf", ServerLoad(1)),
        ("vllm:num_requests_waiting many", ServerLoad(1)),
    ],
)
def test_a_value_that_makes_no_sense_is_missing(line: str, load: ServerLoad) -> None:
    assert read_server_load(f"vllm:num_requests_running 1\n{line}\n") == load


LABELS = st.text(st.characters(codec="utf-8", exclude_characters='\\"\n'), max_size=8)
VALUES = st.floats(0, 1e12, allow_nan=False)


@given(st.lists(st.tuples(LABELS, VALUES), min_size=1, max_size=4), st.text(max_size=50))
def test_the_samples_of_all_engines_are_added_up(samples: list[tuple[str, float]], noise: str) -> None:
    lines = [f'vllm:num_requests_running{{engine="{label}"}} {value!r}' for label, value in samples]
    other = "\n".join(f"#{line}" for line in noise.splitlines())
    load = read_server_load("\n".join([other, *lines, other]))
    assert load is not None
    assert load.running is not None
    assert math.isclose(load.running, sum(value for _, value in samples), rel_tol=1e-9, abs_tol=1e-9)


PIECES = st.sampled_from(["vllm:num_requests_running", "vllm:kv_cache_usage_perc", "{", "}", '"', "\\", "\n", " ", "1"])


@given(st.text(max_size=200) | st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_a_load_of_finite_numbers_or_none(text: str) -> None:
    load = read_server_load(text)
    if load is not None:
        values = [value for value in dataclasses.astuple(load) if value is not None]
        assert all(math.isfinite(value) and value >= 0 for value in values)
        assert load.cache is None or load.cache <= 1


class Reporting(Server):
    """Says `text` on /metrics, or nothing at all if it is None."""

    text: str | None = VLLM

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if path != "/metrics":
            return await super().respond(path, body, writer)
        if self.text is None:
            await asyncio.sleep(3600)
        return await send(writer, 200 if self.text else 404, (self.text or "").encode())


async def loads_of(*urls: str) -> list[ServerLoad | None]:
    model: Model = open_model({"type": "openai", "model": "m", "base_url": list(urls)})
    async with model:
        return await model.server_loads()


def test_dead_silent_and_lying_servers_say_nothing_and_delay_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.models.transport._LOAD_SECONDS", 0.2)
    silent, lying, missing = Reporting(), Reporting(), Reporting()
    silent.text, lying.text, missing.text = None, "<html>vllm:num_requests_running 3</html>", ""
    with running(Reporting()) as good, running(silent), running(lying), running(missing):
        urls = [server.url for server in (good, silent, lying, missing)]
        loads = asyncio.run(loads_of(*urls, "http://127.0.0.1:9/v1"))
    assert loads[0] == ServerLoad(16, 3, 0.75, 2, 1000, 970, 5000)
    assert loads[1:] == [None, None, None, None]


def test_a_model_without_servers_says_nothing() -> None:
    assert asyncio.run(Model().server_loads()) == []
