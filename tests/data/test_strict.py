"""A key that stands twice in an object is refused with its place: a JSON parser would drop one of the values."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import Task, UserError
from ludus.collection.rows import Rows
from ludus.data.strict import refuse_duplicate_keys


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
