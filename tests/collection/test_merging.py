"""`ludus.merge`: the joined shards are the unsharded run, and what cannot be joined is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharding import Dice, Together, collect, collect_shards, model, rows_of, tasks

import ludus
from ludus import ScriptedModel, UserError
from ludus.collection.ledger import Ledger, LineState
from ludus.store.journal import Journal

NEVER = ScriptedModel([{"error": {"kind": "http_500", "cause": "nothing should be left to do"}}], name="dice")


def metrics(folder: Path) -> dict[str, Any]:
    """The metrics without times. Tasks are listed in the order in which they ended, which may differ."""
    found = json.loads((folder / "metrics.json").read_bytes())
    del found["seconds"], found["loop"]
    for each in found["environments"].values():
        del each["seconds"]
    return {**found, "tasks": sorted(found["tasks"], key=lambda task: str(task["task_id"]))}


def lines(folder: Path, name: str = "rollouts.jsonl") -> list[bytes]:
    return (folder / name).read_bytes().splitlines(keepends=True)


def run_json(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_bytes())
    return found


@pytest.mark.parametrize("environment", [Dice, Together])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_joined_shards_are_the_unsharded_run(tmp_path, environment, count):
    rows = tasks(20) + tasks(3)
    collect(tmp_path / "whole", rows, environment=environment)
    shards = collect_shards(tmp_path, count, rows, environment=environment, concurrency=8)
    ludus.merge(shards, tmp_path / "all")
    for name in ("rollouts.jsonl", "failures.jsonl"):
        assert rows_of(tmp_path / "all", name=name) == rows_of(tmp_path / "whole", name=name) != []
    assert metrics(tmp_path / "all") == metrics(tmp_path / "whole")
    assert run_json(tmp_path / "all")["identity"] == run_json(tmp_path / "whole")["identity"]
    assert {path.name for path in (tmp_path / "all").iterdir()} == {
        "rollouts.jsonl",
        "failures.jsonl",
        "run.json",
        "metrics.json",
    }


def test_joined_rows_have_the_order_of_an_unsharded_run_that_played_them_in_order(tmp_path):
    steady = ScriptedModel(lambda request: str(request.seed), "dice")
    collect(tmp_path / "whole", tasks(11), model=steady)
    shards = collect_shards(tmp_path, 4, tasks(11), model=steady)
    ludus.merge(reversed(shards), tmp_path / "all")
    names = [[orjson.loads(line)["rollout_id"] for line in lines(tmp_path / each)] for each in ("all", "whole")]
    assert names[0] == names[1]


def test_mixed_environments_keep_their_own_metrics_and_thresholds(tmp_path):
    make = {"model": ScriptedModel(["done"], name="m"), "limit": 5, "settings": {"mcqa.pass_reward": 0.5}}
    both = ["mcqa", "example_session_state_mgmt"]
    ludus.collect(both, output=tmp_path / "whole", **make)
    for number in (1, 2, 3):
        ludus.collect(both, output=tmp_path / str(number), shard=f"{number}/3", **make)
    ludus.merge([tmp_path / "1", tmp_path / "2", tmp_path / "3"], tmp_path / "all")
    assert metrics(tmp_path / "all") == metrics(tmp_path / "whole")
    assert metrics(tmp_path / "all")["environments"].keys() == set(both)


def test_a_resumed_joined_run_has_nothing_left_to_do(tmp_path):
    rows = tasks(8)
    steady = ScriptedModel(lambda request: str(request.seed), "dice")
    ludus.merge(collect_shards(tmp_path, 3, rows, model=steady), tmp_path / "all")
    before = lines(tmp_path / "all")
    again = collect(tmp_path / "all", rows, model=NEVER, resume=True)
    assert lines(tmp_path / "all") == before
    assert again.metrics["counts"]["completed"] + again.metrics["counts"]["masked"] == 24
    assert "shard" not in run_json(tmp_path / "all")["identity"]
    assert [each["shard"] for each in run_json(tmp_path / "all")["shards"]] == ["1/3", "2/3", "3/3"]


def test_a_resumed_joined_run_retries_what_failed(tmp_path):
    rows = tasks(8)
    ludus.merge(collect_shards(tmp_path, 3, rows), tmp_path / "all")
    failed = len(lines(tmp_path / "all", "failures.jsonl"))
    steady = ScriptedModel(lambda request: str(request.seed), "dice")
    again = collect(tmp_path / "all", rows, model=steady, resume=True)
    assert failed > 0
    assert again.metrics["counts"]["failed"] == 0


def test_a_retry_counts_and_its_failed_attempts_are_kept(tmp_path):
    rows = tasks(12)
    steady = ScriptedModel(lambda request: str(request.seed), "dice")
    for output, shard in (("whole", None), ("1", "1/2"), ("2", "2/2")):
        collect(tmp_path / output, rows, shard=shard)
        collect(tmp_path / output, rows, shard=shard, resume=True, model=model())
        collect(tmp_path / output, rows, shard=shard, resume=True, model=steady)
    merged = ludus.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "all")
    assert metrics(tmp_path / "all") == metrics(tmp_path / "whole")
    assert merged.failures == len(lines(tmp_path / "whole", "failures.jsonl")) > 0
    assert merged.counts["failed"] == 0


def test_load_reads_the_joined_run(tmp_path):
    ludus.merge(collect_shards(tmp_path, 2, tasks(5)), tmp_path / "all")
    run = ludus.load(tmp_path / "all")
    assert len(list(run)) + len(list(run.failures())) == 15
    assert run.metrics["counts"]["dispatched"] == 15
    os.utime(tmp_path / "all" / "rollouts.jsonl")  # now the metrics are older than the rollouts, and are computed again
    again = ludus.load(tmp_path / "all").metrics
    assert (again["counts"], again["reward"]) == (run.metrics["counts"], run.metrics["reward"])


def test_shards_in_files_are_joined(tmp_path):
    rows = tasks(4)
    for number in (1, 2):
        collect(tmp_path / f"part{number}.jsonl", rows, shard=f"{number}/2")
    merged = ludus.merge([tmp_path / "part1.jsonl", tmp_path / "part2.jsonl"], tmp_path / "all")
    assert merged.counts["dispatched"] == 12


def test_duplicated_lines_count_once(tmp_path):
    rows = tasks(10)
    collect(tmp_path / "whole", rows)
    shards = collect_shards(tmp_path, 2, rows)
    doubled = 0
    for name in ("rollouts.jsonl", "failures.jsonl"):
        doubled += len(lines(shards[0], name))
        (shards[0] / name).write_bytes((shards[0] / name).read_bytes() * 2)
    merged = ludus.merge(shards, tmp_path / "all")
    assert merged.duplicates == doubled > 0
    assert metrics(tmp_path / "all") == metrics(tmp_path / "whole")
    assert rows_of(tmp_path / "all") == rows_of(tmp_path / "whole")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.booleans()), max_size=30))
@settings(deadline=None)
def test_every_rollout_counts_with_exactly_one_line(entries):
    with Ledger(0) as ledger:
        for name, attempt, failed in entries:
            ledger.add(0, {"rollout_id": name, "task_id": "a", "attempt": attempt}, failed=failed)
        ledger.settle()
        states = [ledger[line] for line in range(len(entries))]
    names = {name for name, _, _ in entries}
    assert ledger.rollouts[0] == len(names)
    for name in names:
        own = [(state, failed) for state, (each, _, failed) in zip(states, entries, strict=True) if each == name]
        counted = [failed for state, failed in own if state == LineState.COUNTS]
        assert counted == [all(failed for _, failed in own)]
    kept = [(*entry[:2], entry[2]) for state, entry in zip(states, entries, strict=True) if state < LineState.DUPLICATE]
    assert {entry for entry in kept if entry[2]} == {entry for entry in entries if entry[2]}
    assert len([entry for entry in kept if entry[2]]) == len({entry for entry in entries if entry[2]})


def test_a_torn_last_line_is_left_out_and_the_shard_is_incomplete(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(4))
    torn = shards[0] / "rollouts.jsonl"
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(
        UserError, match=r"shard 1/2 in .*shard-1 lacks 1 of its 6 rollouts. Continue it with .*--resume"
    ):
        ludus.merge(shards, tmp_path / "all")
    assert not (tmp_path / "all").exists()
    merged = ludus.merge(shards, tmp_path / "all", partial=True)
    assert (merged.torn, merged.missing_rollouts, merged.counts["dispatched"]) == (1, 1, 11)
    assert torn.read_bytes()[-1:] != b"\n"  # the shard is unchanged
    again = collect(tmp_path / "all", tasks(4), resume=True)
    assert again.metrics["counts"]["dispatched"] == 12


def test_a_whole_last_line_without_a_newline_is_kept(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(4))
    last = shards[0] / "rollouts.jsonl"
    last.write_bytes(last.read_bytes().removesuffix(b"\n"))
    merged = ludus.merge(shards, tmp_path / "all")
    assert (merged.torn, merged.counts["dispatched"]) == (0, 12)
    assert all(line.endswith(b"\n") for line in lines(tmp_path / "all"))


@pytest.mark.parametrize("content", [None, "", "[]", '{"seconds": 3, "model": [], "loop": 1, "warnings": {"a": 1}}'])
def test_a_shard_without_metrics_of_its_own_is_joined(tmp_path, content):
    rows = tasks(6)
    collect(tmp_path / "whole", rows)
    shards = collect_shards(tmp_path, 2, rows)
    (shards[1] / "metrics.json").unlink()
    if content is not None:
        (shards[1] / "metrics.json").write_text(content)
    ludus.merge(shards, tmp_path / "all")
    assert metrics(tmp_path / "all") == metrics(tmp_path / "whole")


def refused(folder: Path, shards: list[Path], match: str, **options: Any) -> None:
    with pytest.raises(UserError, match=match) as error:
        ludus.merge(shards, folder / "all", **options)
    assert "\n" not in str(error.value)
    assert not (folder / "all").exists()
    assert not list(folder.glob(".all*"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 7}, "seed is 0 and 7"),
        ({"model": model("other")}, "model.name is 'dice' and 'other'"),
        ({"rows": tasks(7)}, "dataset.digest is .*; dataset.rows is 6 and 7"),
        ({"environment": Together}, "environments"),
        ({"repeats": 4}, "repeats is 3 and 4"),
        ({"settings": {"pass_reward": 0.5}}, "pass_reward.*is 1.0 and 0.5"),
        ({"shard": "2/3"}, "the number of shards is 2 and 3"),
    ],
)
def test_shards_of_different_runs_are_refused_and_the_difference_is_named(tmp_path, changed, named):
    one = {"rows": tasks(6), "shard": "1/2"}
    collect(tmp_path / "1", **one)
    collect(tmp_path / "2", **{**one, "shard": "2/2", **changed})
    refused(tmp_path, [tmp_path / "1", tmp_path / "2"], f"are of different runs: .*{named}")


def test_the_same_shard_twice_is_refused(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(4))
    shutil.copytree(shards[0], tmp_path / "copy")
    refused(tmp_path, [*shards, tmp_path / "copy"], r"shard 1/2 is given twice: .*shard-1 and .*copy")
    refused(tmp_path, [*shards, shards[1]], r"shard 2/2 is given twice")


def test_missing_shards_are_named_and_refused_unless_a_partial_run_is_wanted(tmp_path):
    rows = tasks(16)
    shards = collect_shards(tmp_path, 8, rows)
    refused(tmp_path, shards[:7], "shard 8/8 is missing. Name all shards, or add --partial")
    refused(tmp_path, shards[1:2], "shards 1/8, 3/8, 4/8, 5/8, 6/8 and 2 more are missing")
    merged = ludus.merge(shards[:7], tmp_path / "all", partial=True)
    assert (merged.missing_shards, merged.missing_rollouts) == (["8/8"], 0)
    collect(tmp_path / "whole", rows)
    again = collect(tmp_path / "all", rows, resume=True)
    assert rows_of(tmp_path / "all") == rows_of(tmp_path / "whole")
    assert again.metrics["counts"]["dispatched"] == 48


def test_runs_that_are_no_shards_are_refused(tmp_path):
    collect(tmp_path / "whole", tasks(2))
    refused(tmp_path, [tmp_path / "whole"], "whole is a whole run, not a shard. Collect shards with: ludus collect")
    refused(tmp_path, [tmp_path / "nowhere"], r"cannot read .*run.json: No such file or directory")
    (tmp_path / "odd").mkdir()
    for content in ("[]", "{}", "no", '{"identity": [], "options": {}}', '{"identity": {}}'):
        (tmp_path / "odd" / "run.json").write_text(content)
        refused(tmp_path, [tmp_path / "odd"], "run.json does not describe a run")
    (tmp_path / "odd" / "run.json").write_text('{"identity": {"shard": "1/2"}, "options": {"repeats": "x"}}')
    refused(tmp_path, [tmp_path / "odd"], "does not describe a shard")
    refused(tmp_path, [], "no shards are given")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_an_output_that_exists_is_refused(tmp_path, kind):
    shards = collect_shards(tmp_path, 2, tasks(2))
    output = tmp_path / "all"
    if kind == "folder":
        output.mkdir()
    elif kind == "file":
        output.write_text("mine")
    else:
        output.symlink_to("nowhere")
    with pytest.raises(UserError, match="all exists already. Choose another --output"):
        ludus.merge(shards, output)
    with pytest.raises(UserError, match="names a file"):
        ludus.merge(shards, tmp_path / "all.jsonl")


def test_a_shard_that_is_being_written_is_refused(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(2))
    with Journal(shards[1] / "rollouts.jsonl"):
        refused(tmp_path, shards, r"shard-2/rollouts.jsonl is being written by another process")
    ludus.merge(shards, tmp_path / "all")


@pytest.mark.parametrize("bad", [b"{}\n", b"[1]\n", b"nonsense\n", b'{"rollout_id": 1}\n'])
def test_a_line_that_is_no_rollout_is_named_and_leaves_no_output(tmp_path, bad):
    shards = collect_shards(tmp_path, 2, tasks(4))
    journal = shards[1] / "rollouts.jsonl"
    journal.write_bytes(journal.read_bytes() + bad + b"\n")
    refused(tmp_path, shards, rf"shard-2/rollouts.jsonl:{len(lines(shards[1])) - 1}: not ")


def test_a_rollout_with_a_wrong_field_is_named_and_leaves_no_output(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(4))
    journal = shards[1] / "rollouts.jsonl"
    row = orjson.loads(lines(shards[1])[0])
    journal.write_bytes(orjson.dumps({**row, "usage": 3}) + b"\n" + b"".join(lines(shards[1])[1:]))
    refused(tmp_path, shards, r"shard-2/rollouts.jsonl: rollout .* cannot be read: usage is 3")


KILLED = """
import os, signal, sys
import ludus
at, *shards = sys.argv[1:]
def tick(share):
    if share >= float(at):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
ludus.merge(shards, "all", tick=tick)
"""


@pytest.mark.parametrize("at", ["0.1", "0.6", "0.95"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_merge_that_dies_leaves_no_output(tmp_path, at, number):
    rows = tasks(150)
    collect(tmp_path / "whole", rows, concurrency=16)
    shards = collect_shards(tmp_path, 3, rows, concurrency=16)
    before = [(shard / "rollouts.jsonl").read_bytes() for shard in shards]
    words = [sys.executable, "-c", KILLED, at, *map(str, shards)]
    signal_before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, "SIGNAL": str(int(number))}, capture_output=True, text=True
        )
    finally:
        signal.signal(signal.SIGINT, signal_before)
    assert done.returncode != 0
    assert not (tmp_path / "all").exists()
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in done.stderr
        assert not list(tmp_path.glob(".all*"))
    assert all(not (left / "run.json").exists() for left in tmp_path.glob(".all*"))
    assert [(shard / "rollouts.jsonl").read_bytes() for shard in shards] == before
    ludus.merge(shards, tmp_path / "all")
    assert metrics(tmp_path / "all") == metrics(tmp_path / "whole")


FULL = """
import resource, signal, sys
import ludus
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
try:
    ludus.merge(sys.argv[2:], "all")
except ludus.UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("size", [100, 30_000])
def test_a_full_disk_is_one_line_and_leaves_no_output(tmp_path, size):
    shards = collect_shards(tmp_path, 2, tasks(40))
    words = [sys.executable, "-c", FULL, str(size), *map(str, shards)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "cannot write" in done.stderr
    assert not list(tmp_path.glob("*all*"))


def stretched(folder: Path, shards: list[Path], times: int) -> list[Path]:
    """Copies of the shards with that many times the tasks: each line again and again, under other ids."""
    made = []
    for shard in shards:
        copy = folder / f"{shard.name}-{times}"
        shutil.copytree(shard, copy)
        for name in ("rollouts.jsonl", "failures.jsonl"):
            with (copy / name).open("wb") as file:
                for number in range(times):
                    for line in lines(shard, name):
                        row = orjson.loads(line)
                        task = f"{row['task_id']}.{number}"
                        row |= {"task_id": task, "rollout_id": f"{task}-{row['repeat']}"}
                        file.write(orjson.dumps(row) + b"\n")
        described = run_json(copy)
        described["options"]["tasks"] *= times
        (copy / "run.json").write_text(json.dumps(described))
        made.append(copy)
    return made


MEASURED = """
import resource, sys
import ludus
output, *shards = sys.argv[1:]
print(ludus.merge(shards, output).counts["dispatched"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_the_memory_of_a_merge_does_not_grow_with_the_number_of_rollouts(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(100), concurrency=16)
    peaks = []
    for times in (20, 120):
        grown = stretched(tmp_path, shards, times)
        words = [sys.executable, "-c", MEASURED, str(tmp_path / f"all-{times}"), *map(str, grown)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        dispatched, peak = map(int, done.stdout.split())
        peaks.append(peak)
        assert dispatched == 300 * times
    assert peaks[1] - peaks[0] < 4 * 1024, "in KiB; a set of the ids of 30,000 more rollouts would take 6 MiB"


def test_progress_reaches_the_end(tmp_path):
    shares: list[float] = []
    ludus.merge(collect_shards(tmp_path, 2, tasks(200), concurrency=16), tmp_path / "all", tick=shares.append)
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 1.0


def test_statistics_of_the_model_are_added_and_warnings_are_listed_once(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(4))
    for number, shard in enumerate(shards, start=1):
        found = json.loads((shard / "metrics.json").read_bytes())
        endpoint = {"url": "http://a", "served": 10 * number, "latency": 0.5, "resting": False}
        found["model"] = {"endpoints": [endpoint], "retries": {"http_429": number, f"only_{number}": 1}}
        found["warnings"] = ["both", f"only {number}"]
        (shard / "metrics.json").write_text(json.dumps(found))
    ludus.merge(shards, tmp_path / "all")
    joined = json.loads((tmp_path / "all" / "metrics.json").read_bytes())
    assert joined["model"] == {
        "endpoints": [{"url": "http://a", "served": 30, "latency": 0.5, "resting": False}],
        "retries": {"http_429": 3, "only_1": 1, "only_2": 1},
    }
    assert joined["warnings"] == ["both", "only 1", "only 2"]


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_any_split_and_any_damage_by_duplication_gives_the_same_run(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("merge")
    count, size = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    rows, random = tasks(size) + tasks(data.draw(st.integers(0, 3))), Random(data.draw(st.integers(0, 99)))
    collect(folder / "whole", rows, repeats=2)
    shards = collect_shards(folder, count, rows, repeats=2)
    for shard in shards:
        for name in ("rollouts.jsonl", "failures.jsonl"):
            own = lines(shard, name)
            again = [line for line in own for _ in range(random.choice((1, 1, 2)))]
            (shard / name).write_bytes(b"".join(again))
    random.shuffle(shards)
    ludus.merge(shards, folder / "all")
    assert rows_of(folder / "all") == rows_of(folder / "whole")
    assert metrics(folder / "all") == metrics(folder / "whole")
