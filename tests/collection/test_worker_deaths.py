"""Worker processes that die, and collections that are stopped or killed while their workers play."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import forked
import interruptible
import psutil
import pytest
from waiting import CEILING, until, until_gone
from worker_runs import command, environment, finished, metrics, pids, recorded, rows, run, write_rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and a model, which is the working folder."""
    monkeypatch.chdir(environment(tmp_path / "acts"))
    return tmp_path / "acts"


@pytest.mark.parametrize("grouped", [False, True])
def test_what_a_killed_worker_was_playing_is_played_again(tmp_path, monkeypatch, grouped):
    folder = environment(tmp_path / "acts", grouped)
    monkeypatch.chdir(folder)
    given = {"input": rows(20, "", "", "", "die_once"), "repeats": 2, "concurrency": 4}
    two = run(folder, "two", **given, workers=2)
    run(folder, "one", **given)
    assert recorded(folder / "two") == recorded(folder / "one")
    assert metrics(folder / "two") == metrics(folder / "one")
    assert two.metrics["workers"] == {"count": 2, "died": 1}
    assert two.warnings == ["1 worker process died. Its rollouts were played again"]


@pytest.mark.slow
def test_a_rollout_that_ends_three_workers_fails_and_the_others_are_unharmed(folder):
    result = run(folder, "out", input=rows(12, "", "die"), repeats=2, concurrency=8, workers=2)
    assert result.metrics["counts"] == {"dispatched": 24, "completed": 22, "failed": 2, "masked": 0}
    for row in recorded(folder / "out", "failures.jsonl").values():
        assert (row["stage"], row["kind"], row.get("reward")) == ("agent", "crash", None)
        assert row["cause"] == "3 worker processes ended while they played it, the last with signal 9 (Killed)"
    died = result.metrics["workers"]["died"]
    assert 4 <= died <= 6
    again = run(folder, "out", input=rows(12, "", "die"), repeats=2, workers=2, resume=True, max_attempts=1)
    assert again.metrics["counts"]["failed"] == 2


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_run_with_one_line(folder):
    source = (folder / "resources.py").read_text()
    dying = '\nif sys.argv[0] == "-c":\n    os._exit(3)\n'
    (folder / "resources.py").write_text("import os\nimport sys\n" + dying + source)
    write_rows(folder, rows(4))
    done = finished(folder)
    assert done.returncode == 2
    assert "worker processes end with exit code 3 before they can play a rollout" in done.stderr


def test_a_worker_that_dies_after_its_last_rollout_is_counted_and_not_replaced(folder):
    source = (folder / "resources.py").read_text()
    dying = "        yield None\n        os.kill(os.getpid(), signal.SIGSEGV)\n"
    (folder / "resources.py").write_text(source.replace("        yield None\n", dying))
    result = run(folder, "out", input=rows(6), workers=2)
    assert result.metrics["counts"]["completed"] == 6
    assert result.metrics["workers"] == {"count": 2, "died": 2}


@pytest.mark.slow
def test_a_dead_worker_is_reported_at_once_and_in_the_summary(folder):
    write_rows(folder, rows(6, "die_once", "wait"))
    process = subprocess.Popen(
        command(folder, 2), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = next(line for line in process.stderr if " done, " not in line)  # progress, on a busy machine
    (folder / "go").touch()
    printed, _ = process.communicate(timeout=CEILING)
    assert line.startswith("warning: a worker process ended with signal 9 (Killed): its ")
    assert "1 worker process died" in printed


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_closes_the_sessions_of_all_workers_and_keeps_what_is_done(folder, how):
    write_rows(folder, rows(40, *["wait"] * 4))
    process = interruptible.start(
        command(folder, 2), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    journal = folder / "out" / "rollouts.jsonl"
    until(lambda: (journal.exists() and journal.read_bytes().count(b"\n") >= 36) or process.poll() is not None)
    process.send_signal(how)
    _, errors = process.communicate(timeout=CEILING)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "stopped: 36 of 40 rollouts are saved" in errors
    until_gone(*pids(folder))
    assert not list(folder.glob("open-*"))
    (folder / "go").touch()
    assert finished(folder, "--resume").returncode == 0
    assert len(recorded(folder / "out")) == 40


def test_a_second_ctrl_c_does_not_wait_for_a_blocked_worker(folder):
    write_rows(folder, rows(4, "block"))
    process = interruptible.start(
        command(folder, 2), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: (folder / "blocking").exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    until(lambda: sum(map(psutil.pid_exists, pids(folder))) < 2)  # the other worker has ended
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=CEILING)
    assert process.returncode == 130
    until_gone(*pids(folder))


@pytest.mark.parametrize("act", ["wait", "block"])
def test_no_worker_outlives_a_collection_that_is_killed(folder, act):
    write_rows(folder, rows(8, act, act))
    process = forked.start(command(folder, 2), cwd=folder)
    until(lambda: (folder / ("waiting" if act == "wait" else "blocking")).exists() or process.poll() is not None)
    found = pids(folder)
    assert found
    process.kill()
    process.wait()
    until_gone(*found)


@pytest.mark.slow
def test_a_stopped_worker_or_collector_goes_on_where_it_was(folder):
    write_rows(folder, rows(12, *["wait"] * 6))
    process = subprocess.Popen(
        command(folder, 2), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: (folder / "waiting").exists() and len(pids(folder)) == 2)
    stopped = psutil.Process(pids(folder)[0])
    collector = psutil.Process(process.pid)
    stopped.suspend()
    collector.suspend()
    until(lambda: stopped.status() == collector.status() == psutil.STATUS_STOPPED)
    (folder / "go").touch()
    collector.resume()
    stopped.resume()
    _, errors = process.communicate(timeout=CEILING)
    assert process.returncode == 0, errors
    lines = (folder / "out" / "rollouts.jsonl").read_bytes().splitlines()
    assert len(lines) == len(recorded(folder / "out")) == 12
    assert "died" not in errors


def test_of_two_resumes_at_once_one_is_refused_and_the_other_records_each_rollout_once(folder):
    write_rows(folder, rows(8, "wait"))
    first = subprocess.Popen(command(folder, 1), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: (folder / "waiting").exists())
    first.kill()
    first.communicate(timeout=CEILING)
    (folder / "waiting").unlink()
    again = [
        subprocess.Popen(
            [*command(folder, 1), "--resume"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    until(lambda: any(process.poll() is not None for process in again) and (folder / "waiting").exists())
    (folder / "go").touch()
    errors = [process.communicate(timeout=CEILING)[1] for process in again]
    assert sorted(process.returncode for process in again) == [0, 2], errors
    assert sum("is being written by another process" in text for text in errors) == 1
    lines = (folder / "out" / "rollouts.jsonl").read_bytes().splitlines()
    assert len(lines) == len(recorded(folder / "out")) == 8
