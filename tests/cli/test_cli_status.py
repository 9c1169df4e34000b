"""`ludus status RUN|URL`: what each endpoint does, and what limits the run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked
import interruptible
import pytest
from servers import Server, running, send
from waiting import CEILING, until

from ludus.collection.run_status import server_seconds, what_limits
from ludus.model import ServerLoad

METRICS = """\
vllm:num_requests_running{engine="0"} 12.0
vllm:num_requests_waiting{engine="0"} 3.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:num_preemptions_total{engine="0"} 2.0
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_hits_total{engine="0"} 970.0
"""


class Reporting(Server):
    """Never answers as a model; says what a busy vLLM says."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if path == "/metrics":
            return await send(writer, 200, METRICS.encode())
        return await super().respond(path, body, writer)


def ludus(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words, environment = [sys.executable, "-m", "ludus", *arguments], {**os.environ, "COLUMNS": "200", **variables}
    return forked.run(words, capture_output=True, text=True, timeout=CEILING, env=environment)


@contextmanager
def collecting(url: str, output: Path, *arguments: str) -> Iterator[None]:
    """A collection whose model never answers."""
    words = [sys.executable, "-m", "ludus", "collect", "mcqa", "--model", f"{url}#hang", "--output", str(output)]
    process = interruptible.start([*words, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_tells_what_its_endpoints_do_and_what_limits_it(tmp_path: Path, workers: str) -> None:
    run = tmp_path / "run"

    def in_flight() -> int:
        path = run / "status.json"
        return sum(json.loads(path.read_text())["stages"].values()) if path.exists() else 0

    with running(Reporting()) as server, collecting(server.url, run, "--concurrency", "auto", "--workers", workers):
        until(lambda: in_flight() > 0)
        status = json.loads(ludus("status", str(run), "--json").stdout)
        shown = ludus("status", str(run)).stdout
    endpoint = status["endpoints"][0]
    assert [endpoint[name] for name in ("running", "waiting", "cache", "preempted")] == [12, 3, 0.25, 2]
    assert endpoint["hit_rate"] == 0.97
    assert status["limits"].startswith("The model servers: requests wait there; add endpoints")
    assert status["limit"] >= 1
    assert "limits now: The model servers" in shown
    assert "97%" in shown


def test_a_model_server_is_asked_by_its_url() -> None:
    with running(Reporting()) as server:
        status = json.loads(ludus("status", server.url, "--json").stdout)
    assert status["endpoints"][0]["waiting"] == 3


def test_a_run_that_is_over_and_a_wrong_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "rollouts.jsonl").write_text("")
    over, wrong = ludus("status", str(tmp_path)), ludus("status", str(tmp_path / "nothing"))
    assert "no collection writes" in over.stderr
    assert "ludus show" in over.stderr
    assert "neither a run nor a URL" in wrong.stderr
    assert (over.returncode, wrong.returncode) == (2, 2)


def test_the_cost_of_useful_tokens_counts_every_endpoint_and_only_rollouts_with_a_verdict(tmp_path: Path) -> None:
    endpoints = [{"url": "http://a"}, {"url": "http://b"}]
    assert server_seconds({"endpoints": endpoints, "seconds": 30.0, "useful_tokens": 12_000}) == 5.0
    assert server_seconds({"endpoints": endpoints, "seconds": 30.0, "useful_tokens": 0}) is None
    run, rows = tmp_path / "run", [{"url": "http://127.0.0.1:9/v1"}]
    run.mkdir()
    status = {"paused": False, "adaptive": False, "limit": 8, "total": 9, "done": 4, "stages": {"model": 2}, "pid": 1}
    (run / "status.json").write_text(
        json.dumps({**status, "endpoints": rows, "seconds": 20.0, "useful_tokens": 8000, "workers": 1})
    )
    assert "1,000 tokens of rollouts with a verdict cost 2.50 s of a server" in ludus("status", str(run)).stdout


IDLE, BUSY = ServerLoad(8, 0, 0.3, 0), ServerLoad(8, 0, 0.95, 0)


@pytest.mark.parametrize(
    ("change", "load", "words"),
    [
        ({"paused": True}, IDLE, "paused"),
        ({"endpoints": [{"url": "http://a", "resting": True}]}, IDLE, "1 of 1 endpoints cannot be reached"),
        ({}, ServerLoad(8, 0, 0.3, 5), "preempted and start over; use --concurrency auto"),
        ({}, ServerLoad(8, 9, 0.3, 0), "requests wait there; --concurrency auto"),
        ({"total": 100}, IDLE, "The end of the run"),
        ({}, IDLE, "--concurrency 64: the servers have room"),
        ({}, BUSY, "add endpoints"),
        ({"adaptive": True}, IDLE, "still looks for"),
        ({"stages": {"verify": 60, "model": 4}}, IDLE, "Stage verify, where 60 of 64 rollouts are: raise --workers"),
        ({"stages": {"tool": 20, "model": 22, "verify": 22}}, IDLE, "Nothing in particular"),
        ({"stages": {}}, None, "Nothing in particular"),
    ],
)
def test_one_sentence_says_what_limits(change: dict[str, Any], load: ServerLoad | None, words: str) -> None:
    status = {"paused": False, "adaptive": False, "limit": 64, "total": 1000, "done": 100, "stages": {"model": 64}}
    assert words in what_limits({**status, "endpoints": [{"url": "http://a"}], **change}, [IDLE], [load])
