"""Collections: killed, resumed, refused, streamed."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import forked
import interruptible
import orjson
import pytest
from kills import MOMENTS, kill_beyond
from waiting import CEILING, until

import ludus
from ludus import Resources, ScriptedModel, UserError

PLAYER = """
import asyncio
from pathlib import Path

async def respond(request):
    await asyncio.sleep((request.seed % 7) / 500)
    while request.seed % 4 == 3 and Path("held").exists():  # so that a run does not end by itself
        await asyncio.sleep(0.01)
    if request.turn == 0:
        return {"call": "increment_counter", "arguments": {"count": request.seed % 3}}
    return "done"
"""
COMMAND = [sys.executable, "-m", "ludus", "collect", "example_session_state_mgmt"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with rows and a scripted model, to run commands in."""
    (tmp_path / "player.py").write_text(PLAYER)
    rows = (
        {"responses_create_params": {"input": "go"}, "initial_count": 0, "expected_count": n % 3, "n": n}
        for n in range(60)
    )
    (tmp_path / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return tmp_path


def command(output: str, *more: str) -> list[str]:
    fixed = ["--input", "rows.jsonl", "--model", "scripted:player:respond", "--repeats", "4", "--concurrency", "8"]
    return [*COMMAND, *fixed, "--output", output, *more]


def content(path: Path) -> dict[str, object]:
    """The reward and the output items of each rollout, by its id."""
    rows = [orjson.loads(line) for line in (path / "rollouts.jsonl").read_bytes().splitlines()]
    ids = [row["rollout_id"] for row in rows]
    assert len(ids) == len(set(ids)), "no rollout is there twice"
    return {row["rollout_id"]: (row["reward"], row["response"]["output"]) for row in rows}


@pytest.mark.slow
def test_a_collection_killed_many_times_and_resumed_equals_an_uninterrupted_one(folder):
    forked.run(command("whole"), cwd=folder, check=True, capture_output=True)
    expected = content(folder / "whole")
    assert len(expected) == 240
    dice = random.Random(7)
    kills = 0
    output = 0
    while kills < MOMENTS:
        output += 1
        name, more = f"killed{output}", ()
        for _ in range(min(5, MOMENTS)):
            journal = folder / name / "rollouts.jsonl"
            enough = (journal.stat().st_size if journal.exists() else 0) + dice.randrange(0, 60_000)
            process = forked.start(command(name, *more), cwd=folder)
            kills += kill_beyond(enough, journal, process)
            more = ("--resume",)
        done = forked.run(command(name, "--resume"), cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert content(folder / name) == expected
        metrics = orjson.loads((folder / name / "metrics.json").read_bytes())
        assert metrics["counts"] == {"dispatched": 240, "completed": 240, "failed": 0, "masked": 0}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_leaves_valid_files_and_prints_the_command_to_resume(folder, how):
    (folder / "held").touch()
    process = interruptible.start(command("out"), cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    journal = folder / "out" / "rollouts.jsonl"
    until(lambda: (journal.exists() and journal.stat().st_size) or process.poll() is not None)
    process.send_signal(how)
    _, errors = process.communicate(timeout=CEILING)
    (folder / "held").unlink()
    assert process.returncode == 130
    assert "Traceback" not in errors
    last = errors.strip().splitlines()[-1]
    assert last.startswith("continue with: ludus collect example_session_state_mgmt")
    assert last.endswith("--resume")
    done = len(content(folder / "out"))
    assert orjson.loads((folder / "out" / "metrics.json").read_bytes())["counts"]["completed"] == done
    rest = forked.run(
        [sys.executable, "-m", "ludus", *last.split()[3:]], cwd=folder, check=True, capture_output=True, text=True
    )
    assert f"resuming: {done} of 240" in rest.stderr
    assert len(content(folder / "out")) == 240


def test_resume_refuses_a_different_run_unless_forced(counter, rows, tmp_path):
    def again(**changes):
        base = {"model": ScriptedModel(["done"]), "input": rows(3), "output": tmp_path}
        return ludus.collect(counter, **{**base, **changes})

    again()
    with pytest.raises(UserError, match="already holds a collection.*--resume"):
        again()
    with pytest.raises(UserError, match="different run: dataset.digest was"):
        again(resume=True, input=rows(4))
    with pytest.raises(UserError, match="different run: seed was 0, now 1"):
        again(resume=True, seed=1)
    with pytest.raises(UserError, match=r"different run: environments.Counter.agent_settings.max_steps was 32, now 3"):
        again(resume=True, settings={"agent.max_steps": 3})
    assert again(resume=True, input=rows(4), force=True).metrics["counts"]["completed"] == 4
    assert again(overwrite=True).metrics["counts"]["completed"] == 3


def test_a_run_may_be_extended_with_more_repeats(counter, rows, tmp_path):
    model = ScriptedModel(["done"])
    ludus.collect(counter, model=model, input=rows(3), output=tmp_path, repeats=1)
    more = ludus.collect(counter, model=model, input=rows(3), output=tmp_path, repeats=4, resume=True)
    assert more.metrics["counts"]["completed"] == 12
    assert sorted(more.metrics["pass@k"]) == ["1", "2", "3", "4"]


def test_resume_retries_failed_rollouts_up_to_max_attempts(counter, rows, tmp_path):
    down = ScriptedModel([{"error": {"kind": "http_500", "cause": "down"}}])
    for attempt in (1, 2, 3, 4):
        result = ludus.collect(counter, model=down, input=rows(2), output=tmp_path, resume=attempt > 1)
        assert result.metrics["counts"] == {"dispatched": 2, "completed": 0, "failed": 2, "masked": 0}
    lines = [orjson.loads(line) for line in (tmp_path / "failures.jsonl").read_bytes().splitlines()]
    assert sorted(line["attempt"] for line in lines) == [1, 1, 2, 2, 3, 3]
    up = ScriptedModel(["done"], name="scripted")
    result = ludus.collect(counter, model=up, input=rows(2), output=tmp_path, resume=True, max_attempts=4)
    assert result.metrics["counts"] == {"dispatched": 2, "completed": 2, "failed": 0, "masked": 0}


def test_a_file_name_as_output_names_the_other_files_after_it(counter, rows, tmp_path):
    ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(2), output=tmp_path / "X.jsonl")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["X.failures.jsonl", "X.jsonl", "X.metrics.json", "X.run.json"]


def test_an_output_row_has_every_documented_field(counter, rows, tmp_path):
    ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(1, expected_count=0), output=tmp_path, repeats=2)
    row = orjson.loads((tmp_path / "rollouts.jsonl").read_bytes().splitlines()[1])
    promised = "rollout_id task_id repeat outcome reward stop_reason responses_create_params response usage timings"
    assert set(promised.split()) <= set(row)
    assert (row["repeat"], row["outcome"], row["reward"], row["expected_count"]) == (1, "completed", 1.0, 0)
    assert row["agent_ref"] == {"type": "responses_api_agents", "name": "Counter"}
    identity = orjson.loads((tmp_path / "run.json").read_bytes())["identity"]
    assert identity["dataset"]["rows"] == 1
    described = {"resources", "settings", "agent", "agent_settings", "limits", "verifier"}
    assert set(identity["environments"]["Counter"]) == described


def test_a_task_field_cannot_replace_a_rollout_field(counter, rows):
    row = {**rows(1)[0], "reward": 99, "outcome": "completed", "response": "x", "usage": 5, "rollout_id": "mine"}
    result = ludus.collect(counter, model=ScriptedModel(["done"]), input=[row])
    written = orjson.loads(result.rollouts[0].encode())
    assert written["reward"] == 0.0
    assert written["rollout_id"] == result.rollouts[0].rollout_id != "mine"
    assert isinstance(written["response"], dict)


def test_a_rollout_is_unchanged_after_writing_and_reading(counter, rows):
    rollout = ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(1)).rollouts[0]
    row = orjson.loads(rollout.encode())
    assert orjson.loads(ludus.Rollout.from_row(row).encode()) == row


async def test_a_stream_yields_failures_and_closes_its_sessions_when_left_early(counter, rows):
    script = [{"error": {"kind": "http_500", "cause": "down"}}]
    seen = [r.error.kind async for r in ludus.stream(counter, model=ScriptedModel(script), input=rows(5))]
    assert seen == ["http_500"] * 5
    closed = []

    class Closing(counter):
        async def close(self) -> None:
            closed.append(1)

    stream = ludus.stream(Closing, model=ScriptedModel(["done"]), input=rows(1000), concurrency=10)
    async for _ in stream:
        break
    await stream.aclose()
    assert 1 <= len(closed) < 100
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_collect_works_inside_a_running_event_loop_as_in_a_notebook(counter, rows):
    with pytest.warns(RuntimeWarning, match="collect_async"):
        result = ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(3))
    assert result.metrics["counts"]["completed"] == 3


def test_rows_may_name_their_environments(tmp_path):
    mixed = [
        {"agent_ref": {"name": "example_session_state_mgmt"}, "initial_count": 1, "expected_count": 1},
        {"agent_ref": {"name": "example_single_tool_call_simple_agent"}},
    ]
    for row in mixed:
        row["responses_create_params"] = {"input": "hi"}
    result = ludus.collect(model=ScriptedModel(["done"]), input=mixed)
    assert [rollout.reward for rollout in result.rollouts] == [1.0, 1.0]
    with pytest.raises(UserError, match="row 1: .*names no environment"):
        ludus.collect(model=ScriptedModel(["done"]), input=[{"responses_create_params": {"input": "hi"}}])


def test_share_is_opened_once_and_closed_at_the_end_of_the_collection(rows):
    from contextlib import asynccontextmanager

    log = []

    class Sharing(Resources):
        @classmethod
        @asynccontextmanager
        async def share(cls, config):
            log.append("open")
            yield {"pool": 1}
            log.append("close")

        async def verify(self, task, response):
            return float(self.shared["pool"])

    result = ludus.collect(Sharing, model=ScriptedModel(["done"]), input=rows(20))
    assert result.metrics["reward"]["mean"] == 1.0
    assert log == ["open", "close"]


def test_seeds_differ_between_repeats_and_are_the_same_in_every_run(counter, rows):
    def seeds(seed):
        result = ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(3), repeats=2, seed=seed)
        return [rollout.job.seed for rollout in result.rollouts]

    assert seeds(0) == seeds(0) != seeds(1)
    assert len(set(seeds(0))) == 6


def test_an_unwritable_output_is_refused_with_a_hint(counter, rows, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*Choose another --output"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(1), output=tmp_path / "file" / "out")


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_the_rest_can_be_resumed(folder):
    """A limit on the file size stands in for a full disk: a write fails in the middle of the run."""
    code = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); sys.argv[0] = 'ludus';"
    code += "from ludus.cli import main; main()"
    limited = [sys.executable, "-c", code, *command("out")[3:]]
    done = subprocess.run(limited, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: cannot write out/rollouts.jsonl: File too large")
    assert len(content(folder / "out")) > 5
    rest = forked.run(command("out", "--resume"), cwd=folder, capture_output=True, text=True)
    assert rest.returncode == 0, rest.stderr
    assert len(content(folder / "out")) == 240


def test_the_stall_warning_names_the_stage_that_rollouts_wait_in(counter, rows, monkeypatch, capsys):
    from ludus.cli import progress

    monkeypatch.setattr(progress, "STALL", 0.3)
    monkeypatch.setattr(progress, "REFRESH", 0.05)
    display, told = progress.Display(), asyncio.Event()

    async def answer(request):
        await told.wait()
        return "late"

    def say(line):
        progress.Display.say(display, line)
        if line.startswith("nothing has happened for") and ": 4 wait for the model." in line:
            told.set()

    monkeypatch.setattr(display, "say", say)
    ludus.collect(counter, model=ScriptedModel(answer), input=rows(4), watch=display.watch)
    assert told.is_set()
    said = r"nothing has happened for [01] s: 4 wait for the model. It computes on this machine"
    assert re.search(said, capsys.readouterr().err)


def test_a_model_that_answers_at_once_does_not_block_the_event_loop(counter, rows):
    """Ctrl-C, the progress display and the stall warning run on the same loop."""
    ticks = 0

    async def watch(collector):
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(200), concurrency=1, watch=watch)
    assert ticks > 100


def test_the_model_that_a_row_names_is_ignored(counter, rows):
    class Noting(ScriptedModel):
        async def respond(self, request):
            assert "model" not in request.params
            return await super().respond(request)

    (row,) = rows(1)
    row["responses_create_params"] |= {"model": "another-model", "temperature": 0.5}
    (rollout,) = ludus.collect(counter, model=Noting(["done"]), input=[row]).rollouts
    assert rollout.error is None
