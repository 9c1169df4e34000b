"""Collections with `--workers`: the results of one process, from several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from branches import ASK
from servers import Server
from waiting import until_gone
from worker_runs import environment, finished, metrics, pids, recorded, rows, run, write_rows

import ludus
from ludus import ScriptedModel, UserError

SCRIPT = """
import ludus


class Own(ludus.Resources):
    async def verify(self, task, response):
        return 1.0


ludus.collect(Own, model="scripted:x.yaml", input=[{"responses_create_params": {"input": "x"}}] * 4, workers=2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and a model, which is the working folder."""
    monkeypatch.chdir(environment(tmp_path / "acts"))
    return tmp_path / "acts"


@pytest.mark.parametrize("concurrency", [5, "auto"])
def test_two_workers_record_the_rollouts_of_one_process(folder, concurrency):
    given = {"input": rows(30, "fail", "mask"), "repeats": 3, "concurrency": concurrency, "seed": 5}
    run(folder, "one", **given)
    run(folder, "two", **given, workers=2)
    for name in ("rollouts.jsonl", "failures.jsonl"):
        assert recorded(folder / "two", name) == recorded(folder / "one", name) != {}
    assert metrics(folder / "two") == metrics(folder / "one")
    assert set(pids(folder)[-2:]) == set(map(int, (folder / "unshared.log").read_text().split()[-2:]))


def test_workers_play_rows_whose_prompt_comes_from_a_template(folder):
    given = {"input": [{"question": f"q{n}"} for n in range(6)], "prompt": "Question: {question}"}
    run(folder, "one", **given)
    run(folder, "two", **given, workers=2)
    assert recorded(folder / "two") == recorded(folder / "one")
    assert "Question: q" in str(recorded(folder / "two"))


@pytest.mark.slow
def test_groups_are_judged_whole_and_a_resumed_group_sees_the_recorded_rollouts(tmp_path, monkeypatch):
    folder = environment(tmp_path / "acts", grouped=True)
    monkeypatch.chdir(folder)
    given = {"input": rows(6), "repeats": 4, "concurrency": 4}
    for output, workers in (("one", 1), ("two", 2)):
        run(folder, output, **given | {"repeats": 2}, workers=workers)
        run(folder, output, **given, workers=workers, resume=True)
    assert recorded(folder / "two") == recorded(folder / "one")
    assert {row["among"] for row in recorded(folder / "two").values()} == {2, 4}


def test_branches_continue_in_workers_as_in_one_process(folder):
    run(folder, "parents", input=[ASK, ASK | {"n": 1}])
    given = {"branch": folder / "parents", "turn": 1, "repeats": 3}
    run(folder, "one", **given)
    run(folder, "two", **given, workers=2)
    assert recorded(folder / "two") == recorded(folder / "one")
    assert len(recorded(folder / "two")) == 6


def test_a_mixed_collection_in_workers_uses_each_rows_environment(folder, tmp_path):
    other = environment(tmp_path / "other")
    (other / "environment.yaml").write_text("name: other\nresources: resources.py:Acts\nagent: {type: single_turn}\n")
    given = {"model": "scripted:answers:respond", "input": None, "repeats": 2}
    given["input"] = [row | {"agent_ref": {"name": name}} for name in ("acts", "other") for row in rows(4)]
    for output, workers in (("one", 1), ("two", 2)):
        ludus.collect([folder, other], **given, output=folder / output, workers=workers)
    assert recorded(folder / "two") == recorded(folder / "one")
    assert metrics(folder / "two") == metrics(folder / "one")


def test_the_workers_share_the_concurrency_and_the_number_of_workers_is_reported(folder):
    result = run(folder, "out", input=rows(20, *["crowd"] * 20), concurrency=3, workers=2)
    assert result.metrics["counts"]["completed"] == 20
    assert result.metrics["workers"] == {"count": 2, "died": 0}
    assert orjson.loads((folder / "out" / "run.json").read_bytes())["options"]["workers"] == 2
    assert len(pids(folder)) == 2
    assert not list(folder.glob("open-*"))


@pytest.mark.slow
def test_there_are_never_more_workers_than_rollouts_or_concurrency(folder):
    assert run(folder, "a", input=rows(2), workers=8).metrics["workers"]["count"] == 2
    assert run(folder, "b", input=rows(9), workers=8, concurrency=1).metrics["workers"]["count"] == 1
    assert run(folder, "b", input=rows(9), workers=8, resume=True).metrics["counts"]["completed"] == 9


async def test_a_stream_from_workers_yields_whole_rollouts_with_tasks_of_the_environment(folder):
    seen = [
        rollout
        async for rollout in ludus.stream(
            folder, model="scripted:answers:respond", input=rows(9, "fail"), workers=2, concurrency=4
        )
    ]
    assert sorted(rollout.outcome for rollout in seen) == ["completed"] * 8 + ["failed"]
    assert {rollout.task.act for rollout in seen} == {"", "fail"}
    assert all(rollout.job.row["act"] == rollout.task.act for rollout in seen)
    assert all(rollout.messages() for rollout in seen)


async def test_a_stream_that_is_left_early_closes_its_sessions_and_leaves_no_worker(folder):
    stream = ludus.stream(folder, model="scripted:answers:respond", input=rows(4000), workers=2)
    async for _ in stream:
        break
    await stream.aclose()
    until_gone(*pids(folder))
    assert not list(folder.glob("open-*"))


def test_what_a_worker_cannot_import_is_refused_with_one_line(folder, tmp_path):
    with pytest.raises(UserError, match="cannot get a copy of the model|cannot import .*it is defined in a function"):
        run(folder, "out", input=rows(2), workers=2, model=ScriptedModel(lambda request: "x"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "x.yaml").write_text("- x\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert "a worker process cannot import Own: it is defined in the main script. Move it to a module" in last


def test_a_model_object_that_can_be_pickled_is_sent_to_the_workers(folder):
    result = run(folder, "out", input=rows(4), workers=2, model=ScriptedModel(["hello"]))
    assert {rollout.response.output_text for rollout in result} == {"hello"}


def test_the_statistics_of_the_workers_models_are_added(folder, server: Server):
    model = {"type": "openai", "model": "m", "base_url": server.url}
    result = run(folder, "out", input=rows(10), workers=2, concurrency=4, model=model)
    assert result.metrics["counts"]["completed"] == 10
    (endpoint,) = result.metrics["model"]["endpoints"]
    assert endpoint["served"] == sum(server.seen.values())
    assert result.metrics["usage"]["output_tokens"] == 3 * sum(server.seen.values())


def test_a_refused_key_stops_a_run_with_workers(folder, server: Server):
    model = {"type": "openai", "model": "401", "base_url": server.url}
    with pytest.raises(UserError, match="Check the key"):
        run(folder, "out", input=rows(40), workers=2, model=model)
    until_gone(*pids(folder))


def test_an_error_of_share_stops_the_run_with_its_own_words(folder):
    (folder / "broken").touch()
    write_rows(folder, rows(4))
    done = finished(folder)
    assert done.returncode == 2
    (error,) = [line for line in done.stderr.splitlines() if " done, " not in line]  # progress, on a busy machine
    assert error.startswith("error: ")
    assert "gone" in error


@pytest.mark.slow
def test_code_that_blocks_the_event_loop_of_a_worker_is_named(folder):
    (folder / "go").touch()
    source = (folder / "resources.py").read_text()
    blocking = 'if task.act == "sleep":\n            time.sleep(0.7)\n        if task.act == "fail"'
    (folder / "resources.py").write_text(source.replace('if task.act == "fail"', blocking))
    write_rows(folder, rows(4, "sleep"))
    done = finished(folder, "--json")
    found = orjson.loads(done.stdout)
    assert found["workers"] == {"count": 2, "died": 0}
    assert any("verify of acts blocked the event loop" in warning for warning in found["warnings"])
    assert "verify of acts blocked the event loop" in done.stderr


def test_enough_ends_the_slower_rollouts_of_a_task_in_workers(tmp_path, monkeypatch):
    folder = environment(tmp_path / "acts")
    monkeypatch.chdir(folder)
    result = run(folder, "out", input=rows(4), repeats=4, enough=2, workers=2, concurrency=4)
    counts = result.metrics["counts"]
    assert counts["completed"] + counts["ended_early"] == counts["dispatched"] == 16
    assert counts["completed"] >= 8
    ended = [orjson.loads(line) for line in (folder / "out" / "failures.jsonl").read_bytes().splitlines()]
    assert {row["kind"] for row in ended} == {"enough"}
    assert len(ended) == counts["ended_early"] > 0
