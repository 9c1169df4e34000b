"""Faults under an open viewer: a damaged index, a changed or deleted run, a full disk, a second viewer."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import viewed_runs
import waiting
from viewing import Visitor, viewing

from ludus.errors import UserError
from ludus.view.index import RunIndex
from ludus.view.listing import rollouts_page
from ludus.view.live import LiveRuns
from ludus.view.one import read_row
from ludus.view.places import ViewedRun


def grown(index: RunIndex) -> RunIndex:
    while index.grow() or index.texts.grow():
        pass
    return index


def ids(index: RunIndex, query: str = "") -> list[int]:
    with index.reading() as database:
        return [row["id"] for row in rollouts_page(database, query, "order", 0, 500)["rollouts"]]


def old_version(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE journals")
        database.execute("CREATE TABLE journals (something_else)")
        database.execute("PRAGMA user_version = 77")
    database.close()


DAMAGES: dict[str, Any] = {
    "no database": lambda path: path.write_bytes(b"not a database at all\n" * 1000),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "pages of zeros": lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\0" * (path.stat().st_size - 4096)),
    "another version": old_version,
    "deleted": lambda path: path.unlink(),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return viewed_runs.write_run(tmp_path / "run", tasks=4, repeats=2)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_built_again_at_the_start(folder: Path, damage: str):
    before = ids(grown(RunIndex(ViewedRun(folder))))
    DAMAGES[damage](folder / "view.sqlite")
    assert ids(grown(RunIndex(ViewedRun(folder)))) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_built_again_under_an_open_viewer(folder: Path, damage: str):
    runs = LiveRuns([folder], {})
    runs.index_all()
    (run,) = runs.runs.values()
    before, version = ids(run.index, "refunded"), run.index.version
    DAMAGES[damage](folder / "view.sqlite")
    try:
        ids(run.index)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert "built again" in str(error)  # noqa: PT017
    runs.index_all()
    runs.index_all()  # the first one may only have noticed the damage
    assert run.problem is None
    assert ids(run.index, "refunded") == before
    assert run.index.version > version


def test_two_viewers_index_each_rollout_once_and_both_show_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus.view.index.BATCH", 3000)
    monkeypatch.setattr("ludus.view.texts.BATCH", 3000)
    first, second = (RunIndex(ViewedRun(folder)) for _ in range(2))
    threads = [threading.Thread(target=grown, args=(index,)) for index in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (folder / "rollouts.jsonl").read_bytes() + (folder / "failures.jsonl").read_bytes()
    assert ids(first, "all:yes") == ids(second, "all:yes") == list(range(1, lines.count(b"\n") + 1))
    version = second.version
    journal = folder / "rollouts.jsonl"
    journal.write_bytes(journal.read_bytes() + journal.read_bytes().splitlines(keepends=True)[0])
    grown(first)
    second.grow()
    assert second.version > version


def test_an_index_that_another_viewer_writes_is_no_problem(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus.view.database.WAIT_SECONDS", 0.05)
    runs = LiveRuns([folder], {})
    (run,) = runs.runs.values()
    other = sqlite3.connect(folder / "view.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    runs.index_all()
    assert run.problem is None
    assert ids(run.index) == []
    with pytest.raises(UserError, match="another viewer is writing"):
        run.index.tag_matches("", "seen")
    other.execute("ROLLBACK")
    other.close()
    runs.index_all()
    assert len(ids(run.index)) == 8


def test_a_journal_that_was_cut_is_indexed_again(folder: Path):
    index, journal = grown(RunIndex(ViewedRun(folder))), folder / "rollouts.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]))
    with pytest.raises(UserError, match="the journal changed since it was indexed"):
        read_row(index, 4)
    (folder / "failures.jsonl").unlink()
    assert ids(grown(index)) == [1, 2]


def test_a_deleted_run_leaves_the_list_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus.view.live.SEARCH_EVERY", 0.0)
    for name in ("one", "two"):
        viewed_runs.write_run(tmp_path / name, tasks=1, repeats=1)
    with viewing(tmp_path) as viewer:
        visitor = Visitor(viewer)
        waiting.until(lambda: [run["counts"]["dispatched"] for run in visitor.ask("runs")["runs"]] == [1, 1])
        keys = [run["key"] for run in visitor.ask("runs")["runs"]]
        waiting.until(lambda: viewed_runs.deleted(tmp_path / "one"))
        status, _, said = visitor.send("GET", f"/api/rollouts?run={keys[0]}")
        assert status in (400, 404), said
        assert json.loads(said)["detail"].count("\n") == 0
        waiting.until(lambda: [run["key"] for run in visitor.ask("runs")["runs"]] == keys[1:])
        assert visitor.ask("rollouts", run=keys[1])["total"] == 1


def test_a_run_that_cannot_be_indexed_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    for name in ("one", "two"):
        viewed_runs.write_run(tmp_path / name, tasks=1, repeats=1)
    (tmp_path / "one" / "view.sqlite").mkdir()  # stands in for a folder that cannot be written
    (run,) = LiveRuns([tmp_path], {}).runs.values()
    assert run.run.name.endswith("two")
    with pytest.raises(UserError, match="Set XDG_CACHE_HOME"):
        LiveRuns([tmp_path / "one"], {})


FULL = """
import resource, sys
from pathlib import Path
from ludus.view.live import LiveRuns
runs = LiveRuns([Path(sys.argv[1])], {})
(run,) = runs.runs.values()
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
runs.index_all()
print(run.problem)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
runs.index_all()
print(run.problem, run.headline({})["counts"]["dispatched"])
"""


def test_a_full_disk_is_one_line_and_indexing_goes_on_when_there_is_room(folder: Path):
    done = subprocess.run([sys.executable, "-c", FULL, str(folder)], capture_output=True, text=True, check=True)
    full, after = done.stdout.splitlines()
    assert full.startswith(f"cannot write {folder / 'view.sqlite'}: ")
    assert "rm " not in full
    assert after == "None 8"
