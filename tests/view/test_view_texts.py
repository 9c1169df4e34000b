"""The search index: it follows the figures, in this process or in a helper, and never finds the text of another run."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import psutil
import pytest
import viewed_runs
import waiting
from hypothesis import given, settings
from hypothesis import strategies as st
from viewing import viewing

from ludus.errors import UserError
from ludus.view import texts
from ludus.view.index import RunIndex
from ludus.view.listing import rollouts_page
from ludus.view.live import LiveRuns
from ludus.view.places import ViewedRun


def grown(index: RunIndex) -> RunIndex:
    while index.grow() or index.texts.grow():
        pass
    return index


def found(index: RunIndex, query: str) -> int:
    with index.reading() as database:
        number: int = rollouts_page(database, query, "order", 0, 500)["total"]
    return number


def write_rows(path: Path, words: list[str]) -> None:
    rows = [{"rollout_id": f"r-{number}", "reward": 1.0, "cause": word} for number, word in enumerate(words)]
    path.with_name("new").write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.replace(path.with_name("new"), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return viewed_runs.write_run(tmp_path / "run", tasks=4, repeats=2)


def helpers_of_this_process() -> list[int]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "processes_child" in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


def test_a_helper_process_makes_the_same_search_index(folder: Path, monkeypatch: pytest.MonkeyPatch):
    here = found(grown(RunIndex(ViewedRun(folder))), "refunded")
    for path in folder.glob("view.*"):
        path.unlink()
    monkeypatch.setattr(texts, "HELPER_BYTES", 0)
    monkeypatch.setattr(texts, "processors", lambda: 2)
    monkeypatch.setattr(texts.TextIndex, "grow", lambda index: pytest.fail("indexed in this process"))
    with viewing(folder) as viewer:
        (run,) = viewer.runs.runs.values()
        waiting.until(lambda: found(run.index, "refunded") == here > 0)
        waiting.until(lambda: not helpers_of_this_process())  # it has nothing to do
    assert run.problem is None


def test_text_is_indexed_here_when_the_helper_dies(folder: Path, monkeypatch: pytest.MonkeyPatch):
    index = RunIndex(ViewedRun(folder))
    while index.grow():
        pass
    monkeypatch.setattr(texts, "HELPER_BYTES", 0)
    monkeypatch.setattr(texts, "processors", lambda: 2)
    monkeypatch.setattr(texts, "grow_texts", end_this_process)
    helper = texts.TextHelper()
    assert helper.grow(index.texts, 1000)
    helper.close()
    assert found(index, "refunded") > 0


def end_this_process(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_helper_process_ends_with_the_viewer(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "HELPER_BYTES", 0)
    monkeypatch.setattr(texts, "processors", lambda: 2)
    with viewing(folder):
        pass
    assert not helpers_of_this_process()


def test_a_search_never_finds_the_text_of_a_journal_that_was_replaced(tmp_path: Path):
    journal = tmp_path / "rollouts.jsonl"
    write_rows(journal, ["alpha", "beta", "gamma"])
    index = grown(RunIndex(ViewedRun(tmp_path)))
    assert (found(index, "alpha"), found(index, "gamma")) == (1, 1)
    write_rows(journal, ["gamma", "alpha", "delta"])
    while index.grow():  # the figures are new, the search index is not
        pass
    assert [found(index, word) for word in ("alpha", "beta", "gamma", "delta")] == [0, 0, 0, 0]
    assert index.unsearched() == journal.stat().st_size
    while index.texts.grow():
        pass
    assert [found(index, word) for word in ("alpha", "beta", "gamma", "delta")] == [1, 0, 1, 1]
    assert index.unsearched() == 0


@pytest.mark.parametrize("left", [0.0, 0.4, 0.95])
def test_a_journal_that_is_copied_again_meanwhile_is_searched_whole(tmp_path: Path, left: float):
    journal = tmp_path / "rollouts.jsonl"
    write_rows(journal, ["alpha", "beta", "gamma"])
    whole = journal.read_bytes()
    index = RunIndex(ViewedRun(tmp_path))
    while index.grow():
        pass
    os.truncate(journal, int(left * len(whole)))  # as `cp` does before it writes
    assert not index.texts.grow()
    with journal.open("r+b") as file:
        file.write(whole)
    assert index.unsearched() == len(whole)
    grown(index)
    assert [found(index, word) for word in ("alpha", "beta", "gamma")] == [1, 1, 1]


def test_a_run_that_does_not_change_is_not_opened_again_and_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    runs = LiveRuns([folder], {})
    runs.index_all()
    (run,) = runs.runs.values()
    runs.index_all()
    with monkeypatch.context() as patch:
        patch.setattr("sqlite3.connect", lambda *given, **named: pytest.fail("opened"))
        runs.index_all()
    assert run.problem is None
    before = found(run.index, "refunded")
    journal = folder / "rollouts.jsonl"
    line = next(each for each in journal.read_bytes().splitlines(keepends=True) if b"refunded" in each)
    with journal.open("ab") as file:
        file.write(line.replace(b"refund-0", b"refund-9"))
    runs.index_all()
    assert found(run.index, "refunded") == before + 1


def test_an_unexpected_error_in_one_run_is_shown_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    for name in ("one", "two"):
        viewed_runs.write_run(tmp_path / name, tasks=1, repeats=1)
    grow = texts.TextIndex.grow

    def fails(index: texts.TextIndex) -> bool:
        if index.path.parent.name == "one":
            raise ZeroDivisionError("an accident")
        return grow(index)

    monkeypatch.setattr(texts.TextIndex, "grow", fails)
    runs = LiveRuns([tmp_path], {})
    runs.index_all()
    first, second = runs.runs.values()
    assert (first.problem, second.problem) == ("ZeroDivisionError: an accident", None)
    assert found(second.index, "stop_reason OR completed") >= 0
    assert caplog.messages == ["ZeroDivisionError: an accident"]
    monkeypatch.setattr(texts.TextIndex, "grow", grow)
    runs.index_all()
    assert first.problem is None


def test_one_file_of_the_index_in_place_of_the_other_is_built_again(folder: Path):
    index = grown(RunIndex(ViewedRun(folder)))
    before = found(index, "refunded")
    for source, target in (("view.sqlite", "view.text.sqlite"), ("view.text.sqlite", "view.sqlite")):
        shutil.copy(folder / source, folder / "copy")
        os.replace(folder / "copy", folder / target)
        runs = LiveRuns([folder], {})
        runs.index_all()
        runs.index_all()
        (run,) = runs.runs.values()
        assert run.problem is None
        assert found(run.index, "refunded") == before > 0


def test_damage_that_only_a_search_finds_is_mended_for_the_next_command(folder: Path):
    index = grown(RunIndex(ViewedRun(folder)))
    before, path = found(index, "refunded"), folder / "view.text.sqlite"
    data = path.read_bytes()
    middle = len(data) // 8192 * 4096
    path.write_bytes(data[:middle] + b"\xff" * (len(data) - middle))
    with pytest.raises(UserError, match="built again"):
        found(RunIndex(ViewedRun(folder)), "refunded")
    assert found(grown(RunIndex(ViewedRun(folder))), "refunded") == before


DAMAGES: dict[str, Any] = {
    "no database": lambda path: path.write_bytes(b"not a database at all\n" * 1000),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "pages of zeros": lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\0" * (path.stat().st_size - 4096)),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("in_helper", [False, True])
def test_a_damaged_search_index_is_built_again(
    folder: Path, damage: str, in_helper: bool, monkeypatch: pytest.MonkeyPatch
):
    if in_helper:
        monkeypatch.setattr(texts, "HELPER_BYTES", 0)
        monkeypatch.setattr(texts, "processors", lambda: 2)
    runs = LiveRuns([folder], {})
    runs.index_all()
    (run,) = runs.runs.values()
    before = found(run.index, "refunded")
    DAMAGES[damage](folder / "view.text.sqlite")

    def is_mended() -> bool:
        runs.index_all()
        try:
            return found(run.index, "refunded") == before > 0
        except UserError as error:
            assert "built again" in str(error)  # noqa: PT017
            return False

    waiting.until(is_mended)
    assert run.problem is None


def test_failures_need_not_wait_for_a_journal_of_rollouts_that_grows_all_the_time(tmp_path: Path):
    write_rows(tmp_path / "rollouts.jsonl", ["alpha"])
    write_rows(tmp_path / "failures.jsonl", ["beta"])
    index = RunIndex(ViewedRun(tmp_path))
    assert index.grow()
    assert index.texts.grow()
    assert (found(index, "all:yes alpha"), found(index, "all:yes beta")) == (1, 1)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_piece_ends_after_a_number_of_rollouts(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "MAX_ROLLOUTS", most)
    write_rows(tmp_path / "rollouts.jsonl", ["alpha", "beta", "gamma", "delta", "alpha"])
    index = RunIndex(ViewedRun(tmp_path))
    while index.grow():
        pass
    pieces = 0
    while index.texts.grow():
        pieces += 1
    assert pieces == math.ceil(5 / most)
    assert (found(index, "alpha"), found(index, "delta")) == (2, 1)


@pytest.mark.parametrize("batch", [1, 50, 400])
def test_bad_lines_between_rollouts_do_not_hide_any(tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "BATCH", batch)
    journal = tmp_path / "rollouts.jsonl"
    write_rows(journal, ["alpha", "beta", "gamma"])
    first, second, third = journal.read_text().splitlines(keepends=True)
    junk = "[1, 2, 3]\n" + "x" * 200 + "\n" + json.dumps({"cause": "alpha"}) + "\n\n"
    journal.write_text(junk + first + junk + second + junk + third + junk)
    index = grown(RunIndex(ViewedRun(tmp_path)))
    assert [found(index, word) for word in ("alpha", "beta", "gamma")] == [1, 1, 1]
    assert index.unsearched() == 0


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('abc"\\,:[]{}ü', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "model_calls", "text", "output"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["response", "model_calls", "rollout_id", "task_id", "outcome", "cause", "verdict_fields", "why", "usage"]


@settings(max_examples=300, deadline=None)
@given(JSON, JSON, JSON)
def test_token_ids_are_left_out_of_parsing_and_nothing_that_is_searched_is(output: Any, calls: Any, task: Any):
    """In the order in which a record is written: `model_calls` and what follows it hold no searched text."""
    row = {
        "rollout_id": "t-0",
        "task_id": "t",
        "outcome": "completed",
        "responses_create_params": {"input": [task, {"role": "user", "content": "asked"}]},
        "verdict_fields": ["why"],
        "why": "because",
        "response": {"output": [output, {"type": "message", "content": output}]},
        "model_calls": [calls],
        "step_times": [calls],
    }
    line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    assert texts.line_text(line) == texts.searched_text(row)


@settings(max_examples=300, deadline=None)
@given(st.permutations(FIELDS), JSON)
def test_a_record_with_its_fields_in_any_order_is_searched_whole(order: list[str], value: Any):
    values = {"rollout_id": "t-0", "task_id": "t", "outcome": "completed", "cause": "c", "verdict_fields": ["why"]}
    values |= {"why": "because", "response": {"output": [{"content": "said"}]}, "model_calls": [value], "usage": {}}
    row = {name: values[name] for name in order}
    line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    assert texts.line_text(line) == texts.searched_text(row)


def test_an_old_index_that_held_the_text_too_is_built_again(folder: Path):
    with sqlite3.connect(folder / "view.sqlite") as database:
        database.execute("CREATE VIRTUAL TABLE texts USING fts5 (text, content='')")
        database.execute("CREATE TABLE journals (file, identity, facts_at, lines, text_at, tail)")
        database.execute("CREATE TABLE large (text)")
        database.execute("INSERT INTO large VALUES (zeroblob(5000000))")
        database.execute("PRAGMA user_version = 2")
    database.close()
    assert found(grown(RunIndex(ViewedRun(folder))), "refunded") > 0
    assert (folder / "view.sqlite").stat().st_size < 1_000_000
