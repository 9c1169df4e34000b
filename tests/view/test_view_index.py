"""The index of a run: what it counts, how it grows, and what it does with lines that are no rollouts."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import viewed_runs
from hypothesis import given, settings
from hypothesis import strategies as st

import ludus
from ludus.errors import UserError
from ludus.view import index, schema
from ludus.view.facts import Facts
from ludus.view.index import RunIndex
from ludus.view.listing import neighbours, rollouts_page
from ludus.view.live import LiveRuns
from ludus.view.live_run import LiveRun
from ludus.view.places import ViewedRun, find_runs
from ludus.view.query import parse_query


def indexed(path: Path) -> LiveRun:
    runs = LiveRuns([path], {})
    runs.index_all()
    return next(iter(runs.runs.values()))


def listed(run: LiveRun, query: str, sort: str = "order") -> list[dict[str, Any]]:
    with run.index.reading() as database:
        found: list[dict[str, Any]] = rollouts_page(database, query, sort, 0, 500)["rollouts"]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LiveRun:
    return indexed(viewed_runs.write_run(tmp_path_factory.mktemp("runs") / "first"))


def test_the_figures_are_those_of_the_metrics(run: LiveRun):
    metrics, shown = ludus.load(run.run.path).metrics, run.overview({})
    counts = dict(shown["counts"])
    assert (counts.pop("retried"), counts.pop("ended_early")) == (3, 0)
    assert counts == metrics["counts"]
    assert counts["dispatched"] == counts["completed"] + counts["masked"] + counts["failed"]
    assert shown["reward"]["mean"] == pytest.approx(metrics["reward"]["mean"])
    assert shown["reward"]["ci95"] == pytest.approx(metrics["reward"]["ci95"])
    assert shown["pass@k"]["1"] == pytest.approx(metrics["pass@k"]["1"])
    assert shown["pass@k"]["4"] == pytest.approx(metrics["pass@k"]["4"])
    assert sum(shown["histogram"]["counts"]) == counts["completed"]
    assert {each["name"]: each["count"] for each in shown["stop_reasons"]} == metrics["stop_reasons"]
    assert {each["name"]: each["mean"] for each in shown["components"]} == pytest.approx(
        metrics["reward"]["components"], abs=0.02
    )


def test_the_index_grows_with_the_journal_and_leaves_out_a_torn_line(tmp_path: Path):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=3, repeats=2)
    journal = folder / "rollouts.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1][:50])
    found = indexed(folder)
    assert len(listed(found, "")) == 1
    with journal.open("ab") as file:
        file.write(lines[1][50:] + lines[2])
    while found.index.grow() or found.index.texts.grow():
        pass
    assert [row["id"] for row in listed(found, "")] == [1, 2, 3]
    assert len(listed(found, "broken")) == 3  # all three are searchable


def test_tokens_that_no_rollout_records_are_unknown_and_not_zero(tmp_path: Path):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=2, repeats=1)
    journal = folder / "rollouts.jsonl"
    found = [json.loads(line) for line in journal.read_text().splitlines()]
    assert all(row["output_tokens"] > 0 for row in listed(indexed(folder), "outcome:completed"))
    for row in found:
        row.pop("usage", None)
        row["response"].pop("usage", None)
    found[0]["usage"] = {"input_tokens": 3, "output_tokens": 0}
    journal.write_text("".join(json.dumps(row) + "\n" for row in found))
    (folder / "failures.jsonl").unlink()
    run = indexed(folder)
    assert {row["output_tokens"] for row in listed(run, "")} == {0, None}
    assert run.overview({})["tokens"] == {"input": 3, "output": 0}
    del found[0]["usage"]
    journal.write_text("".join(json.dumps(row) + "\n" for row in found))
    assert indexed(folder).overview({})["tokens"] == {"input": None, "output": None}


def test_a_replaced_journal_is_indexed_again(tmp_path: Path):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=3, repeats=1)
    found = indexed(folder)
    rows = [json.loads(line) for line in (folder / "rollouts.jsonl").read_bytes().splitlines()]
    for row in rows[:-1]:
        row["reward"] = 0.5  # the last line stays as it is
    new = tmp_path / "new.jsonl"
    new.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.replace(new, folder / "rollouts.jsonl")
    while found.index.grow() or found.index.texts.grow():
        pass
    assert [row["reward"] for row in listed(found, "")][:-1] == [0.5] * (len(rows) - 1)


def test_lines_that_are_no_rollouts_are_reported_and_the_others_shown(tmp_path: Path):
    found = indexed(viewed_runs.write_hostile_run(tmp_path / "hostile", turns=50))
    shown = found.overview({})
    assert shown["counts"]["dispatched"] == 7
    assert shown["bad_lines"]["total"] == 6
    assert [line["number"] for line in shown["bad_lines"]["first"]] == [2, 3, 4, 5, 6, 7]


def test_a_duplicated_line_counts_once_and_a_retried_attempt_is_not_final(tmp_path: Path):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=4, repeats=1)
    journal = folder / "rollouts.jsonl"
    journal.write_bytes(journal.read_bytes() + journal.read_bytes())
    found = indexed(folder)
    counts = {"dispatched": 4, "completed": 4, "masked": 0, "failed": 0, "ended_early": 0, "retried": 1}
    assert found.overview({})["counts"] == counts
    assert len(listed(found, "outcome:failed")) == 0
    assert len(listed(found, "outcome:failed all:yes")) == 1


def figures(folder: Path) -> list[tuple[Any, ...]]:
    """All rows of the figures, as a new index holds them."""
    for path in folder.glob("view.sqlite*"):
        path.unlink()
    found = indexed(folder)
    with found.index.reading() as database:
        return [tuple(row) for row in database.execute("SELECT * FROM rollouts ORDER BY file, offset")]


LINES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["completed", "masked", "failed"])), max_size=12)


@settings(max_examples=40, deadline=None)
@given(LINES)
def test_a_rollout_has_one_final_line_however_many_are_indexed_at_once(lines: list[tuple[int, str]]):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            {"rollout_id": f"t-{number}", "task_id": "t", "repeat": number, "outcome": outcome, "reward": 1.0}
            for number, outcome in lines
        ]
        (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        together = figures(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index, "BATCH", 1)
            one_by_one = figures(folder)
    assert together == one_by_one
    final = Counter(row[5] for row in together if row[7])
    assert final == Counter({row[5] for row in together})


def test_figures_are_kept_in_the_columns_of_their_names():
    assert list(Facts({}, 1, {}).columns) == schema.FACTS


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_the_index_of_a_read_only_run_lies_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=1, repeats=1)
    folder.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert RunIndex(ViewedRun(folder)).path.is_relative_to(tmp_path / "cache")


def test_notes_lie_beside_the_run_and_survive_a_new_index(tmp_path: Path):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=3, repeats=1)
    before = (folder / "rollouts.jsonl").read_bytes()
    found = indexed(folder)
    assert found.index.tag_matches("task:refund-001", "odd one") == 1
    (folder / "view.sqlite").unlink()
    again = indexed(folder)
    assert [row["task_id"] for row in listed(again, "tag:odd-one")] == ["refund-001"]
    assert (folder / "rollouts.jsonl").read_bytes() == before


def test_runs_are_found_in_folders_and_beside_files(tmp_path: Path):
    viewed_runs.write_run(tmp_path / "a" / "first", tasks=1, repeats=1)
    other = viewed_runs.write_run(tmp_path / "b", tasks=1, repeats=1)
    (other / "rollouts.jsonl").rename(tmp_path / "named.jsonl")
    (other / "run.json").rename(tmp_path / "named.run.json")
    (other / "failures.jsonl").unlink()
    assert sorted(Path(run.name).name for run in find_runs([tmp_path])) == ["first", "named.jsonl"]
    with pytest.raises(UserError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        ("reward:0", lambda row: row["reward"] == 0),
        ("reward:>=1 errors:0", lambda row: row["reward"] == 1 and row["tool_errors"] == 0),
        ("-reward:>=1", lambda row: row["reward"] is None or row["reward"] < 1),
        ("outcome:failed", lambda row: row["outcome"] == "failed"),
        ("outcome:masked", lambda row: row["mask"] is not None),
        ("task:refund-00*", lambda row: row["task_id"].startswith("refund-00")),
        ("stop:max_steps", lambda row: row["stop_reason"] == "max_steps"),
        ("repeat:1..2", lambda row: row["repeat"] in (1, 2)),
        ("kind:http_429", lambda row: row["kind"] == "http_429"),
        ('"could not find your order"', lambda row: row["tool_errors"] > 0),
    ],
)
def test_a_filter_finds_exactly_the_rollouts_it_describes(run: LiveRun, query: str, holds: Any):
    everything = listed(run, "")
    assert [row["id"] for row in listed(run, query)] == [row["id"] for row in everything if holds(row)]
    assert len(listed(run, query)) not in (0, len(everything))


def test_a_wrong_filter_is_a_sentence():
    with pytest.raises(UserError, match="there is no filter `rewrad:`. Did you mean reward"):
        parse_query("rewrad:1")
    with pytest.raises(UserError, match="takes a number, not 'much'"):
        parse_query("reward:much")


@given(
    st.text(max_size=60) | st.from_regex(r'(-?(reward|tool|task|note|cause|tag):)?["*<>=.\w -]{0,20}', fullmatch=True)
)
@settings(max_examples=150, deadline=None)
def test_any_query_is_answered_or_refused_with_a_sentence(run: LiveRun, query: str):
    said = ""
    try:
        listed(run, query)
    except UserError as refused:
        said = str(refused)
    assert len(said.splitlines()) <= 1


@pytest.mark.parametrize("sort", ["order", "-reward", "reward", "-tokens", "-order"])
def test_the_next_rollout_is_the_next_of_the_list(run: LiveRun, sort: str):
    rows = [row["id"] for row in listed(run, "tool:refund", sort)]
    with run.index.reading() as database:
        around = neighbours(database, "tool:refund", sort, rows[5])
    assert (around["previous"], around["next"]) == (rows[4], rows[6])
    assert (around["place"], around["total"]) == (6, len(rows))
