"""Control of a running collection from the viewer: pause, resume, and a clean stop that can be resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import viewed_runs
import waiting
from viewing import Visitor, viewing

import ludus

pytestmark = pytest.mark.slow


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_collection_is_paused_resumed_and_stopped(tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    row = {"responses_create_params": {"input": "add 3"}, "initial_count": 1, "expected_count": 4}
    rows.write_text("".join(json.dumps({"task_id": f"t{n}", **row}) + "\n" for n in range(5000)))
    script = tmp_path / "slow.yaml"
    script.write_text("- {text: done, delay: 0.05}\n")
    output = tmp_path / "runs" / "first"
    command = [sys.executable, "-m", "ludus", "collect", "example_session_state_mgmt", "--input", str(rows)]
    command += ["--model", f"scripted:{script}", "--output", str(output), "--concurrency", "4"]
    journal = output / "rollouts.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collecting:
        try:
            waiting.until(lambda: lines(journal) > 2)
            with viewing(tmp_path / "runs") as viewer:
                visitor = Visitor(viewer)
                run = visitor.ask("runs")["runs"][0]
                assert run["state"]["running"]
                assert run["state"]["control"] == {
                    "only_stop": False,
                    "most": 4,
                    "paused": False,
                    "concurrency": None,
                    "stop": False,
                }

                def ask(**request: Any) -> None:
                    assert visitor.send("POST", "/api/control", {"run": run["key"], **request})[0] == 200

                ask(paused=True)
                counts = [-2, -1]
                waiting.until(lambda: counts.append(lines(journal)) or counts[-1] == counts[-2], every=1.5)
                held = lines(journal)
                ask(concurrency=2)
                waiting.until(lambda: lines(journal) > held + 4)
                assert visitor.send("POST", "/api/control", {"run": run["key"], "concurrency": 0})[0] == 422
                told = visitor.ask("changes")["runs"][run["key"]]
                ask(stop=True)
                _, said = collecting.communicate(timeout=waiting.CEILING)
                assert collecting.returncode == 130
                assert "rollouts are saved" in said
                assert visitor.send("POST", "/api/control", {"run": run["key"], "stop": True})[0] == 409
                waiting.until(lambda: visitor.ask("changes")["runs"][run["key"]] > told)
                waiting.until(lambda: not visitor.ask("runs")["runs"][0]["state"]["running"])
        finally:
            collecting.kill()
    assert not (output / "control.json").exists()
    assert (output / "metrics.json").exists()


def test_a_run_with_automatic_concurrency_shows_auto_and_not_a_number(tmp_path: Path):
    output, script = tmp_path / "first", tmp_path / "answers.yaml"
    script.write_text("- done\n")
    ludus.collect("mcqa", model=f"scripted:{script}", concurrency="auto", limit=1, output=output)
    with viewed_runs.being_written(output), viewing(tmp_path) as viewer:
        assert Visitor(viewer).ask("runs")["runs"][0]["state"]["control"]["most"] == "auto"


def test_a_paused_run_has_no_speed_and_pages_are_told_of_a_pause_by_somebody_else(tmp_path: Path):
    from ludus.collection.control import ask

    folder = viewed_runs.write_run(tmp_path / "run", tasks=2, repeats=1)
    described = json.loads((folder / "run.json").read_bytes())
    described["identity"]["dataset"]["rows"] = 500
    (folder / "run.json").write_text(json.dumps(described))
    with viewed_runs.being_written(folder), viewing(folder) as viewer:
        visitor = Visitor(viewer)

        def run() -> Any:
            return visitor.ask("runs")["runs"][0]

        waiting.until(lambda: run()["counts"]["dispatched"] == 2)
        assert run()["state"]["per_second"] > 0
        assert run()["state"]["seconds_left"] > 0
        told = visitor.ask("changes")["runs"][run()["key"]]
        ask(folder / "control.json", 1, paused=True, concurrency=None, stop=False)
        waiting.until(lambda: visitor.ask("changes")["runs"][run()["key"]] > told)
        assert run()["state"]["control"]["paused"]
        assert (run()["state"]["per_second"], run()["state"]["seconds_left"]) == (None, None)
        ask(folder / "control.json", 1, paused=False, concurrency=None, stop=False)
        assert run()["state"]["per_second"] is None  # the average since the start would count the pause


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_collection_with_a_limit_still_ends(limit: int):
    from ludus.collection.control import Control, ControlledJobs

    control, began = Control(), list[int]()
    jobs: Any = iter(range(6))
    control.set(paused=False, limit=limit)
    playing = set[int]()
    source = ControlledJobs(jobs, control, lambda: len(playing))
    most = 0

    async def work() -> None:
        nonlocal most
        import asyncio

        while True:
            job: Any = source.take()
            if job is not None:
                playing.add(job)
                most = max(most, len(playing))
                await asyncio.sleep(0)
                playing.discard(job)
                began.append(job)
            elif source.ended:
                return
            else:
                await source.wait()

    import asyncio

    await asyncio.wait_for(asyncio.gather(*(work() for _ in range(4))), waiting.CEILING)
    assert sorted(began) == list(range(6))
    assert most == limit


async def test_more_rollouts_are_played_at_once_than_at_the_start(tmp_path: Path):
    import asyncio

    import ludus

    rows = tmp_path / "rows.jsonl"
    row = {"responses_create_params": {"input": "add 3"}, "initial_count": 1, "expected_count": 4}
    rows.write_text("".join(json.dumps({"task_id": f"t{n}", **row}) + "\n" for n in range(40)))
    at_once, most, all_there = 0, 0, asyncio.Event()

    async def answer(request: Any) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 12:
            all_there.set()
        await all_there.wait()  # for ever, if no more than two are played
        at_once -= 1
        return "done"

    async def watch(collector: Any) -> None:
        await waiting.until_async(lambda: at_once == 2)
        collector.control.set(paused=False, limit=12)

    model = ludus.ScriptedModel(answer)
    collecting = ludus.collect_async(
        "example_session_state_mgmt", model=model, input=rows, output=tmp_path / "run", concurrency=2, watch=watch
    )
    await asyncio.wait_for(collecting, waiting.CEILING)
    assert lines(tmp_path / "run" / "rollouts.jsonl") == 40
    assert most == 12
