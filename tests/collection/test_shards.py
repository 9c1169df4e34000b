"""`collect(shard="2/8")`: the shards of a collection together are the collection, row by row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import forked
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharding import Together, collect, collect_shards, model, rows_of, tasks

import ludus
from ludus import Resources, ScriptedModel, UserError
from ludus.data.shards import Shard, Split


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    return forked.run(
        [sys.executable, "-m", "ludus", "collect", *words], cwd=folder, env=variables, capture_output=True, text=True
    )


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("concurrency", [1, 16])
def test_the_rows_of_all_shards_are_the_rows_of_the_unsharded_run(tmp_path, count, concurrency):
    rows = tasks(23)
    collect(tmp_path / "whole", rows)
    shards = collect_shards(tmp_path, count, rows, concurrency=concurrency)
    for name in ("rollouts.jsonl", "failures.jsonl"):
        assert rows_of(*shards, name=name) == rows_of(tmp_path / "whole", name=name) != []


def test_tasks_are_dealt_out_in_turns_so_that_shards_differ_by_at_most_one_task(tmp_path):
    shards = collect_shards(tmp_path, 4, tasks(10))
    sizes = [
        len({row["task_id"] for name in ("rollouts.jsonl", "failures.jsonl") for row in rows_of(shard, name=name)})
        for shard in shards
    ]
    assert sizes == [3, 3, 2, 2]


def test_duplicates_of_a_task_are_in_one_shard_with_the_ids_of_the_unsharded_run(tmp_path):
    rows = tasks(5) + tasks(5) + tasks(1, task_id="own") + tasks(2, task_id="own") + tasks(1, task_id="own.2")
    whole = collect(tmp_path / "whole", rows, repeats=2)
    shards = collect_shards(tmp_path, 3, rows, repeats=2)
    assert rows_of(*shards) == rows_of(tmp_path / "whole")
    assert {"own", "own.2", "own.3", "own.2.2"} <= {task["task_id"] for task in whole.metrics["tasks"]}
    shards_of_task: dict[str, set[Path]] = {}
    for shard in shards:
        for row in rows_of(shard) + rows_of(shard, name="failures.jsonl"):
            given = row.get("task_fields", {}).get("task_id", row["task_id"].partition(".")[0])
            shards_of_task.setdefault(given, set()).add(shard)
    assert all(len(found) == 1 for found in shards_of_task.values())


@given(
    st.lists(st.sampled_from("abcdefgh") | st.text(max_size=3), max_size=60),
    st.integers(min_value=1, max_value=9),
)
@settings(deadline=None)
def test_every_task_is_in_exactly_one_shard_and_the_shards_are_balanced(names, count):
    taken = [[name for name in names if split.takes(name)] for split in _splits(count)]
    assert sorted(name for part in taken for name in part) == sorted(names)
    sizes = [len(set(part)) for part in taken]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == len(set(names))


def _splits(count: int) -> list[Split]:
    return [Split(Shard(number, count)) for number in range(1, count + 1)]


def test_repeats_that_are_judged_together_are_in_one_shard(tmp_path):
    rows = tasks(9)
    collect(tmp_path / "whole", rows, environment=Together, repeats=4)
    shards = collect_shards(tmp_path, 4, rows, environment=Together, repeats=4)
    assert rows_of(*shards) == rows_of(tmp_path / "whole")
    assert max(row["size"] for row in rows_of(*shards)) == 4


class Talk(Resources):
    async def verify(self, task: Any, response: ludus.Response) -> float:
        return 1.0

    @ludus.tool
    async def ping(self) -> str:
        """Answer."""
        return "pong"


def talker() -> ScriptedModel:
    return ScriptedModel([{"call": "ping", "arguments": {}}, "done"], name="talker")


def test_branches_are_split_like_rows(tmp_path):
    ludus.collect(Talk, model=talker(), input=tasks(7), output=tmp_path / "first", concurrency=1)
    branch = {"branch": tmp_path / "first", "turn": 1, "repeats": 2, "model": talker()}
    ludus.collect(Talk, output=tmp_path / "whole", **branch)
    shards = [tmp_path / f"shard-{number}" for number in (1, 2, 3)]
    for number, output in enumerate(shards, start=1):
        ludus.collect(Talk, output=output, shard=f"{number}/3", **branch)
    assert rows_of(*shards) == rows_of(tmp_path / "whole")
    assert [len(rows_of(shard)) for shard in shards] == [6, 4, 4]


def test_generated_and_mixed_rows_are_split(tmp_path):
    make = {"model": ScriptedModel(["done"], name="m"), "limit": 5}
    both = ["mcqa", "example_session_state_mgmt"]
    ludus.collect(both, output=tmp_path / "whole", **make)
    shards = [tmp_path / f"shard-{number}" for number in (1, 2, 3)]
    for number, output in enumerate(shards, start=1):
        ludus.collect(both, output=output, shard=f"{number}/3", **make)
    assert rows_of(*shards) == rows_of(tmp_path / "whole")


def test_the_limit_counts_the_rows_of_the_whole_collection(tmp_path):
    shards = collect_shards(tmp_path, 2, tasks(9), limit=5, repeats=1)
    assert sum(json.loads((shard / "metrics.json").read_bytes())["counts"]["dispatched"] for shard in shards) == 5


def test_a_shard_is_resumed_like_any_run(tmp_path):
    rows = tasks(12)
    whole = collect(tmp_path / "whole", rows)
    again = {"shard": "2/3", "output": tmp_path / "two", "rows": rows}
    collect(**again)
    expected = rows_of(tmp_path / "two")
    journal = tmp_path / "two" / "rollouts.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    resumed = collect(**again, resume=True)
    assert rows_of(tmp_path / "two") == expected
    assert resumed.metrics["counts"]["dispatched"] == 12 == whole.metrics["counts"]["dispatched"] // 3


def test_a_shard_without_tasks_is_an_empty_run(tmp_path):
    result = collect(tmp_path / "four", tasks(3), shard="4/4")
    assert result.metrics["counts"] == {"dispatched": 0, "completed": 0, "failed": 0, "masked": 0}
    assert list(ludus.load(tmp_path / "four")) == []
    assert {path.name for path in (tmp_path / "four").iterdir()} == {
        "rollouts.jsonl",
        "failures.jsonl",
        "run.json",
        "metrics.json",
    }
    again = collect(tmp_path / "four", tasks(3), shard="4/4", resume=True)
    assert again.metrics["counts"]["dispatched"] == 0


def test_the_command_ends_well_on_a_shard_without_tasks(tmp_path):
    (tmp_path / "script.yaml").write_text("- done\n")
    words = ["mcqa", "--model", "scripted:script.yaml", "--limit", "2", "--shard", "3/3", "--output", "three"]
    done = command(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "shard 3/3 has no tasks" in done.stderr
    assert "Traceback" not in done.stderr


def test_shards_started_in_the_same_second_have_folders_of_their_own(tmp_path):
    (tmp_path / "script.yaml").write_text("- done\n")
    for number in (1, 2):
        words = ["mcqa", "--model", "scripted:script.yaml", "--limit", "2", "--shard", f"{number}/2", "--json"]
        assert command(tmp_path, *words).returncode == 0
    assert sorted(path.name[-7:] for path in (tmp_path / "runs").iterdir()) == ["-1-of-2", "-2-of-2"]


@pytest.mark.parametrize(
    ("recorded", "asked", "said"),
    [
        ("1/2", "2/2", "holds shard 1/2 of a collection, not shard 2/2"),
        ("1/2", "1/3", "holds shard 1/2 of a collection, not shard 1/3"),
        ("1/2", None, "holds shard 1/2 of a collection, not all of it"),
        (None, "1/2", "holds all of a collection, not shard 1/2"),
        ("9/9", "1/9", "holds shard 9/9 of a collection, not shard 1/9"),  # an empty shard
    ],
)
def test_resuming_a_folder_with_another_shard_is_refused(tmp_path, recorded, asked, said):
    rows = tasks(6)
    collect(tmp_path / "run", rows, shard=recorded)
    before = rows_of(tmp_path / "run")
    with pytest.raises(UserError, match=said) as refused:
        collect(tmp_path / "run", rows, shard=asked, resume=True)
    assert "\n" not in str(refused.value)
    assert rows_of(tmp_path / "run") == before


def test_an_empty_shard_is_replaced_by_another_one_only_with_overwrite(tmp_path):
    rows = tasks(2)
    collect(tmp_path / "run", rows, shard="3/3")
    with pytest.raises(UserError, match="holds shard 3/3 of a collection, not shard 1/3"):
        collect(tmp_path / "run", rows, shard="1/3")
    result = collect(tmp_path / "run", rows, shard="1/3", overwrite=True)
    assert result.metrics["counts"]["dispatched"] == 3


def test_the_identity_of_an_unsharded_run_does_not_mention_shards(tmp_path):
    collect(tmp_path / "run", tasks(1))
    assert "shard" not in json.loads((tmp_path / "run" / "run.json").read_bytes())["identity"]


@pytest.mark.parametrize(
    "wrong", ["0/8", "9/8", "-1/8", "1", "1/", "/8", "a/b", "1/2/3", "1/0", " ", "", "1.0/2", "²/3", "1/9999999999999"]
)
def test_a_shard_that_is_not_i_of_n_is_refused_with_an_example(wrong):
    with pytest.raises(UserError, match=r"shard .* is not I/N .* Example: --shard 2/8") as refused:
        collect(None, tasks(1), shard=wrong)
    assert "\n" not in str(refused.value)


def test_the_command_refuses_a_wrong_shard_in_one_line(tmp_path):
    done = command(tmp_path, "mcqa", "--shard", "9/8")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--shard 2/8" in done.stderr


def test_a_shard_that_is_no_text_is_refused():
    with pytest.raises(UserError, match="is not I/N"):
        collect(None, tasks(1), shard=(1, 2))


def test_stream_takes_a_shard():
    import asyncio

    async def names() -> list[str]:
        return [each.task_id async for each in ludus.stream(Talk, model=model(), input=tasks(4), shard="1/2")]

    assert len(asyncio.run(names())) == 2


def test_progress_expects_only_the_rollouts_of_the_shard():
    result = ludus.Collection(Talk, _options(shard="2/3"))
    assert result.prepare().progress.total == 6


def _options(**given: Any) -> Any:
    from ludus.collection.options import Options

    return Options(model=model(), input=tasks(7), repeats=3, **given)


def test_counts_of_all_shards_add_up(tmp_path):
    rows = tasks(20)
    whole = collect(tmp_path / "whole", rows).metrics["counts"]
    counts: Counter[str] = Counter()
    for shard in collect_shards(tmp_path, 6, rows):
        counts.update(json.loads((shard / "metrics.json").read_bytes())["counts"])
    assert dict(counts) == whole
