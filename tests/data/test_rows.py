"""Rows: bad rows are reported before the run, ids are stable, and duplicates get different ids."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading

import orjson
import pytest

from ludus import Task, UserError
from ludus.data.rows import Rows
from ludus.dataset import Generated


class Answer(Task):
    expected_answer: str


def rows(source, limit=None):
    return Rows(source, Answer.model_validate, limit)


def write(path, *lines):
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else orjson.dumps(line) for line in lines) + b"\n")
    return path


GOOD = {"responses_create_params": {"input": "hi"}, "expected_answer": "A"}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"{", r"rows\.jsonl:3: not JSON"),
        (b"[1]", r"rows\.jsonl:3: not a JSON object"),
        ({"responses_create_params": {"input": "x"}}, r"rows\.jsonl:3: expected_answer is missing"),
        ({"expected_answer": "A"}, r"rows\.jsonl:3: responses_create_params is missing"),
        ({**GOOD, "expected_answer": 5}, r"rows\.jsonl:3: expected_answer must be text, not 5"),
        ({**GOOD, "responses_create_params": {}}, r"rows\.jsonl:3: responses_create_params: .*input must be"),
        (
            {**GOOD, "responses_create_params": {"input": [1]}},
            r"rows\.jsonl:3: responses_create_params: .*input must be",
        ),
        ({**GOOD, "responses_create_params": {"input": "x", "tools": "all"}}, r"rows\.jsonl:3: .*tools must be"),
    ],
)
def test_a_bad_row_is_reported_with_file_line_and_field(tmp_path, bad, says):
    path = write(tmp_path / "rows.jsonl", GOOD, b"", bad, GOOD)
    with pytest.raises(UserError, match=says):
        rows(path).survey()


def test_a_missing_or_empty_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read .*nowhere.jsonl: No such file"):
        rows(tmp_path / "nowhere.jsonl").survey()
    with pytest.raises(UserError, match="holds no rows"):
        rows(write(tmp_path / "empty.jsonl", b"")).survey()


def test_ids_depend_on_the_content_and_duplicates_get_a_suffix(tmp_path):
    same = dict(reversed(GOOD.items()))
    path = write(
        tmp_path / "rows.jsonl", GOOD, same, {**GOOD, "expected_answer": "B"}, GOOD, {**GOOD, "task_id": "mine"}
    )
    ids = [task_id for task_id, _, _ in rows(path)]
    assert len(set(ids)) == 5
    assert ids[1] == f"{ids[0]}.2"
    assert ids[3] == f"{ids[0]}.3"
    assert ids[4] == "mine"
    assert ids == [task_id for task_id, _, _ in rows([orjson.loads(line) for line in path.read_bytes().splitlines()])]


def test_rows_after_the_limit_are_not_read(tmp_path):
    path = write(tmp_path / "rows.jsonl", GOOD, GOOD, b"{ broken")
    assert rows(path, limit=2).survey().rows == 2
    assert len(list(rows(path, limit=2))) == 2


def test_the_digest_depends_on_the_rows_and_not_on_blank_lines(tmp_path):
    one = rows(write(tmp_path / "a.jsonl", GOOD, GOOD)).survey()
    two = rows(write(tmp_path / "b.jsonl", GOOD, b"", GOOD)).survey()
    other = rows(write(tmp_path / "c.jsonl", GOOD, {**GOOD, "expected_answer": "B"})).survey()
    assert one.digest == two.digest != other.digest


def ids_of(*names):
    return [task_id for task_id, _, _ in rows([{**GOOD, "task_id": name, "n": n} for n, name in enumerate(names)])]


def test_a_duplicate_never_gets_the_id_of_another_row():
    assert ids_of("a.2", "a", "a", "a") == ["a.2", "a", "a.3", "a.4"]
    assert ids_of("a", "a", "a.2", "a") == ["a", "a.2", "a.2.2", "a.3"]


def test_rows_from_a_pipe_can_be_read_again(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lines = b"".join(orjson.dumps({**GOOD, "n": n}) + b"\n" for n in range(4)) + orjson.dumps({**GOOD, "n": 4})
    writer = threading.Thread(target=path.write_bytes, args=(lines,))
    writer.start()
    piped = rows(path, limit=5)
    survey = piped.survey()
    writer.join()
    assert [row["n"] for _, row, _ in piped] == [row["n"] for _, row, _ in piped] == [0, 1, 2, 3, 4]
    (tmp_path / "rows.jsonl").write_bytes(lines)
    assert survey == rows(tmp_path / "rows.jsonl").survey()


def test_rows_may_be_any_iterable_of_objects():
    given = [{**GOOD, "n": n} for n in range(3)]
    for source in (given, tuple(given), iter(given), (row for row in given)):
        found = rows(source)
        assert found.survey().rows == 3
        assert [row["n"] for _, row, _ in found] == [0, 1, 2]
    endless = ({**GOOD, "n": n} for n in itertools.count())
    assert rows(endless, limit=2).survey().rows == 2


@pytest.mark.parametrize("bad", [5, GOOD])
def test_a_number_or_a_single_row_is_refused_as_rows(bad):
    with pytest.raises(UserError, match="rows must be a file or a list of objects, not "):
        rows(bad)


@pytest.mark.parametrize(("bad", "says"), [("text", "row 2: not a JSON object"), ({"x": {1}}, "row 2: .*set")])
def test_a_bad_row_of_a_list_is_reported_with_its_number(bad, says):
    with pytest.raises(UserError, match=says):
        rows([GOOD, bad]).survey()


def deep(levels):
    return orjson.dumps(GOOD)[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}"


def test_a_row_nested_too_deep_is_reported_before_the_run(tmp_path):
    with pytest.raises(UserError, match=r"rows\.jsonl:2: nested too deep: .*Fix the row or leave it out"):
        rows(write(tmp_path / "rows.jsonl", GOOD, deep(400))).survey()
    fine = rows(write(tmp_path / "rows.jsonl", GOOD, deep(250), {**GOOD, "x": [[1]] * 400}))
    assert fine.survey().rows == len(list(fine)) == 3


def test_a_full_disk_while_rows_are_buffered_names_the_folder_and_tmpdir(tmp_path):
    many = Generated("many", lambda seed: ({**GOOD, "seed": seed, "n": n} for n in range(100_000)))
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    try:
        with pytest.raises(UserError) as caught:
            Rows(many, Answer.model_validate, 100_000).survey()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    expected = f"cannot copy the rows to {tempfile.gettempdir()}: File too large. Set TMPDIR to a folder with more room"
    assert str(caught.value) == expected


def test_survey_and_iteration_both_report_a_row_nested_too_deep(tmp_path):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"responses_create_params": {"input": "hi"}, "d": ' + "[" * 400 + "]" * 400 + "}\n")
    for read in (Rows(path, Task.model_validate).survey, lambda: list(Rows(path, Task.model_validate))):
        with pytest.raises(UserError, match=r"deep.jsonl:1: nested too deep"):
            read()
