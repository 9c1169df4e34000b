"""A key that stands twice in an object is refused with its place: a JSON parser would drop one of the values."""

from __future__ import annotations

import json
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_data.dedupe import dedupe
from ludus_data.inputs import Inputs
from ludus_data.mapping import RowMapping
from ludus_data.overlap import overlap
from ludus_data.sample import sample
from ludus_data.split import split
from ludus_data.stats import stats

from ludus import Task, UserError
from ludus.data.rows import Rows
from ludus.store.strict import refuse_duplicate_keys


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (b'"a": 1, "a": 1', "a"),
        (b'"x": {"b": "1", "c": [], "b": "2"}', "b"),
        (b'"x": [{"b": 1e5}, {"b": 1, "\\u0062": 2, "\\u0022": "\\u0022\\u0022"}]', "b"),
        (b'"a": "\\u0022\\u0022\\u0022\\u0022", "b": 1, "b": ""', "b"),
    ],
)
def test_a_survey_refuses_a_key_that_stands_twice(tmp_path, more, key):
    (tmp_path / "rows.jsonl").write_bytes(b'{"responses_create_params": {"input": "hi"}, ' + more + b"}\n")
    with pytest.raises(UserError, match=rf"rows.jsonl:1: the key '{key}' stands twice in an object. Rename or remove"):
        Rows(tmp_path / "rows.jsonl", Task.model_validate).survey()


VALUES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63) | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_rows_without_duplicates_pass(row, ascii_only, indent):
    line = json.dumps(row, ensure_ascii=ascii_only, indent=indent).encode()
    refuse_duplicate_keys("here", line, orjson.loads(line))


@given(st.text(max_size=3), VALUES, VALUES, st.dictionaries(st.text(max_size=3), VALUES, max_size=2))
def test_two_equal_keys_never_pass(key, first, second, rest):
    inside = f"{json.dumps(key)}: {json.dumps(first)}, {json.dumps(key)}: {json.dumps(second)}"
    line = f'{{"row": {{{inside}}}, "rest": {json.dumps(rest)}}}'.encode()
    with pytest.raises(UserError, match="stands twice"):
        refuse_duplicate_keys("here", line, orjson.loads(line))


@pytest.mark.parametrize("command", ["split", "dedupe", "overlap", "overlap-train", "sample", "stats", "show"])
def test_every_command_refuses_a_key_that_stands_twice(tmp_path, command):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_bytes(b'{"question": "Hi?"}\n')
    bad.write_bytes(b'{"question": "Hi?"}\n{"question": "Who?", "answer": {"a": 1, "a": 2}}\n')
    commands: dict[str, Callable[[], object]] = {
        "split": lambda: split([bad], tmp_path / "parts", {"train": 1.0}),
        "dedupe": lambda: dedupe([bad], tmp_path / "unique.jsonl"),
        "overlap": lambda: overlap([good], [bad]),
        "overlap-train": lambda: overlap([bad], [good]),
        "sample": lambda: sample([bad], 2),
        "stats": lambda: stats([bad]),
        "show": lambda: list(Inputs([bad]).rows()),
    }
    with pytest.raises(UserError) as refused:
        commands[command]()
    assert str(refused.value) == f"{bad}:2: the key 'a' stands twice in an object. Rename or remove one of them"
    assert sorted(path.name for path in tmp_path.rglob("*.jsonl")) == ["bad.jsonl", "good.jsonl"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"seed": 123456789012345678901}', "the integer 123456789012345678901 has more than 64 bits"),
        ('{"seed": 1, "seed": 2}', "the key 'seed' stands twice in an object"),
    ],
)
def test_a_text_that_is_parsed_must_lose_nothing_either(text, reason):
    mapping = RowMapping(map={"question": "prompt"}, parse=["info"])
    with pytest.raises(UserError, match=f"info: {reason}"):
        mapping.task_row({"question": "Hi?", "info": text})
    whole = RowMapping(task="extra_info.task")
    with pytest.raises(UserError, match=f"extra_info.task: {reason}"):
        whole.task_row({"extra_info": {"task": text}})
