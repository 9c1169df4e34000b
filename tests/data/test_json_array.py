"""The elements of a JSON array are what `json.loads` finds in it, wherever the stream is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.data.json_array import BrokenArray, array_elements

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(st.lists(VALUES, max_size=4), st.integers(1, 40), st.sampled_from([None, 0, 2]), st.booleans())
def test_elements_are_those_that_json_loads_finds(values, size, indent, ascii_only):
    data = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode() + b" \n"
    assert [json.loads(each) for each in array_elements(pieces(data, size), 2**20)] == values


@given(st.lists(VALUES, min_size=1, max_size=4), st.data())
def test_a_truncated_array_is_never_taken_for_a_whole_one(values, data):
    text = json.dumps(values).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(BrokenArray, match="ends in the middle of row"):
        list(array_elements([text[:cut]], 2**20))


@given(st.text(alphabet='[]{}",\\ 1a:', max_size=12), st.integers(1, 5))
def test_text_that_is_no_array_is_refused_or_its_elements_are_not_json(tail, size):
    text = "[" + tail
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = [json.loads(each) for each in array_elements(pieces(text.encode(), size), 2**20)]
    except (BrokenArray, ValueError):
        found = None
    assert found == expected


def test_an_element_over_the_limit_is_refused():
    with pytest.raises(BrokenArray, match="row 2 is longer than 100 bytes"):
        list(array_elements([b'["a", "', b"x" * 200, b'"]'], 100))
