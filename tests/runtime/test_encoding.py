"""JSON encoding: any value that a tool or a verifier returns is encoded, and the JSON can be read back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.runtime.encoding import compact, encode
from ludus.task import private

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(PLAIN)
)


@given(VALUES)
def test_any_value_is_encoded_as_json_that_can_be_read_back(value: Any) -> None:
    read = orjson.loads(encode(value))
    assert orjson.loads(encode(read)) == read


@given(st.recursive(st.integers() | st.text() | st.none(), lambda inner: st.lists(inner) | st.tuples(inner)))
def test_json_values_are_encoded_without_change(value: Any) -> None:
    text = json.dumps(value) if not _has_surrogates(value) else None
    if text is not None:
        assert json.loads(encode(value)) == json.loads(text)


@pytest.mark.parametrize("exponent", [30, 300, 400, 5000])
def test_an_integer_of_any_length_is_encoded_without_loss(exponent: int) -> None:
    found = json.loads(encode({"n": 10**exponent, "s": {1}}))["n"]
    assert (int(found, 16) if isinstance(found, str) else found) == 10**exponent
    orjson.loads(encode({"n": 10**exponent}))


def test_compact_returns_an_equal_copy() -> None:
    data = orjson.dumps({"a": 1})
    assert compact(data) == data
    assert compact(data) is not data


def test_private_also_copies_a_row_that_orjson_cannot_encode() -> None:
    row = {"note": "a\ud800b", "n": [10**30]}
    copy = private(row)
    assert copy == row
    assert copy["n"] is not row["n"]


def _has_surrogates(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def test_an_object_that_json_lacks_does_not_import_numpy():
    code = "import sys\nfrom ludus.runtime.encoding import encode\nencode({1})\nprint('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
