"""`--metrics-port`: what Prometheus reads while a collection runs."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_telemetry.metrics_server import MetricsServer
from worker_runs import environment, rows

from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.errors import UserError
from ludus.http.prometheus import Metric, prometheus_reply

parser = pytest.importorskip("prometheus_client.parser", reason="needs: pip install prometheus-client")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """The samples as Prometheus' own parser reads them."""
    families = parser.text_string_to_metric_families(text)
    return {(each.name, tuple(each.labels.items())): each.value for family in families for each in family.samples}


def scrape(url: str, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return str(reply.read().decode())


def scraped_while_running(folder: Path, read: Callable[[str], Any], **options: Any) -> Any:
    """Read the metrics when all rollouts but the one that waits have ended, and end the run."""

    async def reading() -> Any:
        given_rows = rows(6, "wait", "fail", "mask")
        settings = {"model": "scripted:answers:respond", "input": given_rows, "output": folder / "out", **options}
        collection = Collection(str(folder), Options(**settings))
        collector = collection.prepare()
        running = asyncio.create_task(collection.run(collector))
        try:
            while collector.progress.finished < 5 or not collector.progress.waiting()["verify"]:
                await asyncio.sleep(0.01)
                if running.done():
                    running.result()
            assert collection.observer is not None
            return await asyncio.to_thread(read, str(collection.observer.metrics_url))
        finally:
            (folder / "go").touch()
            await running

    return asyncio.run(reading())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and a model, which is the working folder."""
    monkeypatch.chdir(environment(tmp_path / "acts"))
    return tmp_path / "acts"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_prometheus_reads_the_state_of_a_running_collection(folder, workers):
    found = parsed(scraped_while_running(folder, scrape, metrics_port=0, workers=workers))
    outcomes = {labels[0][1]: value for (name, labels), value in found.items() if name == "ludus_rollouts_total"}
    assert outcomes == {"completed": 3.0, "failed": 1.0, "masked": 1.0}
    assert found["ludus_rollout_failures_total", (("stage", "verify"), ("kind", "crash"))] == 1.0
    assert found["ludus_rollouts_expected", ()] == 6.0
    assert found["ludus_rollouts_in_flight", (("stage", "verify"),)] == 1.0
    assert 0 <= found["ludus_pass_rate", ()] <= 1
    assert found["ludus_stage_seconds_total", (("stage", "total"),)] > 0
    assert "ludus_reward_mean" in {name for name, _ in found}


def test_the_port_is_free_again_after_the_run(folder):
    url = scraped_while_running(folder, lambda url: url, metrics_port=0)
    with pytest.raises(urllib.error.URLError):
        scrape(url)


def test_beyond_loopback_the_metrics_need_a_token(folder, monkeypatch):
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    with pytest.raises(UserError, match="listening on 0.0.0.0 needs a token. Set LUDUS_TOKEN"):
        MetricsServer("0.0.0.0:0")
    monkeypatch.setenv("LUDUS_TOKEN", "a-long-token")

    def read(url: str) -> tuple[int, str]:
        here = url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(here)
        refused.value.close()
        return refused.value.code, scrape(here, Authorization="Bearer a-long-token")

    status, text = scraped_while_running(folder, read, metrics_port="0.0.0.0:0")
    assert status == 401
    assert "ludus_rollouts_total" in text


@pytest.mark.parametrize("place", ["x", "70000", ":1", "localhost:", "-1"])
def test_a_place_that_is_no_port_is_refused_in_one_line(place):
    with pytest.raises(UserError, match="is not a port. Example: --metrics-port 9464"):
        MetricsServer(place)


@given(st.dictionaries(st.sampled_from(["stage", "kind"]), st.text(st.characters(codec="utf-8")), min_size=1))
def test_any_text_of_a_label_is_read_back(labels):
    text = prometheus_reply([Metric("x_total", "counter", [(3, labels)])]).body.decode()
    assert parsed(text) == {("ludus_x_total", tuple(labels.items())): 3.0}
