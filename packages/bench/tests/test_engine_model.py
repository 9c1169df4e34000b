"""The model of an inference server, and what `--concurrency auto` makes of its reports."""

from __future__ import annotations

from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st
from ludus_bench.admission import serve
from ludus_bench.engine_model import EngineModel, EngineRequest, EngineSpeed

from ludus.collection.adaptive import Adaptive
from ludus.models.server_metrics import read_server_load


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(1, 60)), min_size=1, max_size=40))
def test_an_engine_answers_every_request_once_and_keeps_its_books(rows: list[tuple[int, int, int]]) -> None:
    engine, finished = EngineModel(EngineSpeed(cache_tokens=300, most_running=8)), []
    requests = [
        EngineRequest([(task, 40), ((task, own), 10)], output, (task, own + 1) if number % 2 else ("answer", number))
        for number, (task, own, output) in enumerate(rows)
    ]
    for request in requests:
        engine.submit(request)
    for _ in range(10_000):
        finished += engine.step()
        if not engine.running and not engine.waiting:
            break
    assert sorted(map(id, finished)) == sorted(map(id, requests))
    assert engine.cache_usage == 0
    assert engine.hits <= engine.queries
    load = read_server_load(engine.metrics())
    assert load is not None
    assert (load.running, load.waiting, load.preempted) == (0, 0, engine.preempted)


def test_repeats_of_a_prompt_are_computed_once() -> None:
    engine = EngineModel()
    for number in range(10):
        engine.submit(EngineRequest([("prompt", 1000)], 5, number))
    while engine.running or engine.waiting:
        engine.step()
    assert (engine.queries, engine.hits) == (10_000, 9_000)


SPEED = EngineSpeed(cache_tokens=100_000, most_running=256)


def test_reports_of_a_server_fill_its_cache_without_preempting() -> None:
    history = serve(Adaptive(start=8), EngineModel(SPEED), 180)
    assert history[-1].preempted == 0
    assert fmean(second.usage for second in history[60:]) > 0.7


def test_reports_of_a_server_raise_the_limit_sooner_than_its_answers() -> None:
    with_reports = serve(Adaptive(start=8), EngineModel(SPEED), 40)
    without = serve(Adaptive(start=8), EngineModel(SPEED), 40, reports=False)
    assert with_reports[-1].limit > 3 * without[-1].limit


def test_a_queue_at_the_server_lowers_the_limit_to_what_runs() -> None:
    engine = EngineModel(EngineSpeed(cache_tokens=10_000_000, most_running=32, prefill_rate=1e6))
    history = serve(Adaptive(start=400), engine, 120)
    assert 32 <= history[-1].limit <= 48


def test_reports_of_a_server_end_preemption_where_contexts_grow() -> None:
    speed = EngineSpeed(cache_tokens=200_000, prefill_rate=6000)
    adapted, blind = EngineModel(speed), EngineModel(speed)
    serve(Adaptive(start=8), adapted, 400, turns=10)
    serve(Adaptive(start=256, minimum=256, maximum=256), blind, 400, turns=10, reports=False)
    assert adapted.preempted < blind.preempted / 2
    assert adapted.generated > 2 * blind.generated
