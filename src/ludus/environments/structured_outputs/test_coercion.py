"""Texts become the types that a schema asks for; texts that do not fit stay texts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.structured_outputs.coercion import (
    coerced_csv,
    coerced_xml,
    plainly_coerced_csv,
    plainly_coerced_xml,
)

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
POINT = {"type": "object", "properties": {"x": INTEGER}}


def coerced_element(value: Any, schema: Any, coerce: Any = coerced_xml) -> Any:
    return coerce({"r": value}, {"properties": {"r": schema}})["r"]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", INTEGER, 5),
        ("-5", INTEGER, -5),
        ("5.0", INTEGER, "5.0"),
        ("1_000", INTEGER, "1_000"),
        ("five", INTEGER, "five"),
        ("5", STRING, "5"),
        ("2.5", {"type": "number"}, 2.5),
        ("1e3", {"type": "number"}, 1000.0),
        ("nan", {"type": "number"}, "nan"),
        ("true", {"type": "boolean"}, True),
        ("0", {"type": "boolean"}, False),
        ("yes", {"type": "boolean"}, "yes"),
        (None, STRING, ""),
        (None, INTEGER, None),
        (None, {"type": ["string", "null"]}, None),
        ("5", {"type": ["integer", "null"]}, "5"),
        ("5", {"type": ["integer", "string"]}, "5"),
        ("7", {"const": 7}, 7),
        ("7", {"enum": ["7", 7]}, "7"),
        ("5", {"anyOf": [INTEGER, {"type": "null"}]}, "5"),
        ("5", {}, "5"),
        ("5", True, "5"),
        (None, {"type": "array", "items": INTEGER}, []),
        ("5", {"type": "array", "items": INTEGER}, [5]),
        (["5", "6"], {"type": "array", "items": INTEGER}, [5, 6]),
        ({"i": ["5", "6"]}, {"type": "array", "items": INTEGER}, [5, 6]),
        ({"i": "5"}, {"type": ["array", "null"], "items": INTEGER}, {"i": "5"}),
        ({"i": "5", "j": "6"}, {"type": "array", "items": STRING}, [{"i": "5", "j": "6"}]),
        ({"x": "5"}, {"type": "array", "items": POINT}, [{"x": 5}]),
        ({"p": [{"x": "5"}, {"x": "6"}]}, {"type": "array", "items": POINT}, [{"x": 5}, {"x": 6}]),
        ({"row": {"c": ["1", "2"]}}, {"type": "array", "items": {"type": "array", "items": INTEGER}}, [[1, 2]]),
        (None, {"type": "object"}, {}),
        ({"x": "5"}, {"anyOf": [{"properties": {"y": INTEGER}}, POINT]}, {"x": "5"}),
        ({"k": "5"}, {"type": "object", "additionalProperties": INTEGER}, {"k": 5}),
    ],
)
def test_an_xml_element_gets_the_type_that_the_schema_asks_for(value: Any, schema: Any, expected: Any) -> None:
    result = coerced_element(value, schema)
    assert result == expected
    assert type(result) is type(expected)


def test_circular_references_are_followed() -> None:
    tree = {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#"}}}
    assert coerced_xml({"n": "1", "next": {"n": "2"}}, tree) == {"n": 1, "next": {"n": 2}}
    assert coerced_xml("1", {"$ref": "#", "type": "integer"}) == 1
    lists = {"type": "array", "items": {"$ref": "#"}}
    assert coerced_xml("1", lists) == ["1"]
    assert coerced_xml({"i": "1", "j": "2"}, lists) == [{"i": "1", "j": "2"}]
    schema = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "items": {"$ref": "#/$defs/a"}}
    assert coerced_xml(["1"], schema) == ["1"]


def test_csv_cells_get_the_types_that_the_schema_asks_for_and_missing_cells_stay_none() -> None:
    schema = {
        "type": "array",
        "items": {"$ref": "#/$defs/row"},
        "$defs": {"row": {"properties": {"n": {"type": ["integer", "null"]}, "s": STRING, "f": {"type": "number"}}}},
    }
    records: list[dict[Any, Any]] = [{"n": "1", "s": "", "f": "2"}, {"n": "", "s": None, "f": "", None: ["x"]}]
    expected = [{"n": 1, "s": "", "f": 2.0}, {"n": None, "s": None, "f": "", None: ["x"]}]
    assert coerced_csv(records, schema) == expected
    assert plainly_coerced_csv(records, schema) == records


NUMBER: dict[str, Any] = {"type": "number"}


@pytest.mark.parametrize(
    ("cell", "schema", "expected"),
    [
        ("1e3", NUMBER, 1000.0),
        ("inf", NUMBER, math.inf),
        ("-Infinity", NUMBER, -math.inf),
        ("1_000", NUMBER, "1_000"),
        ("infinite", NUMBER, "infinite"),
        ("1e3", INTEGER, "1e3"),
        ("inf", INTEGER, "inf"),
        ("inf", {"type": ["integer", "number"]}, math.inf),
        ("12", {"type": ["integer", "string"]}, 12),
        ("12", {"type": ["string", "integer"]}, "12"),
        ("inf", {"type": ["number", "string"]}, math.inf),
        ("inf", {"type": ["string", "number"]}, "inf"),
        ("x", {"type": ["integer", "string"]}, "x"),
        ("", {"type": ["string", "null"]}, None),
        ("1", {"type": ["boolean", "integer"]}, True),
    ],
)
def test_a_csv_cell_gets_the_first_of_its_types_that_fits(cell: str, schema: Any, expected: Any) -> None:
    ((found,),) = (record.values() for record in coerced_csv([{"c": cell}], {"items": {"properties": {"c": schema}}}))
    assert (found, type(found)) == (expected, type(expected))


TYPES = ["integer", "number", "boolean", "string", "null"]
CELLS = ["", "1", "0", "true", "1.5", "1e3", "inf", "-inf", "Infinity", "nan", "NaN", "x", " 7 ", "+3", ".5", "1e999"]


cells = st.sampled_from(CELLS) | st.floats().map(repr) | st.integers().map(str)


@given(cells, st.permutations(TYPES), st.integers(1, 5))
def test_a_csv_cell_is_read_as_the_reference_reads_it(cell: str, order: list[str], many: int) -> None:
    for types in (order[:many], order[0]):
        schema = {"items": {"properties": {"c": {"type": types}}}}
        ours, plain = (coerce([{"c": cell}], schema)[0]["c"] for coerce in (coerced_csv, plainly_coerced_csv))
        assert repr(ours) == repr(plain)


def test_plain_coercion_reads_nothing_but_type() -> None:
    assert coerced_element("5", {"type": ["integer", "null"]}, plainly_coerced_xml) == "5"
    assert coerced_element("5", {"anyOf": [INTEGER]}, plainly_coerced_xml) == "5"
    assert coerced_element("1_000", INTEGER, plainly_coerced_xml) == 1000
    assert coerced_element({"i": ["5"]}, {"type": "array", "items": INTEGER}, plainly_coerced_xml) == [5]
    assert coerced_element({"x": "5"}, {"type": "array", "items": POINT}, plainly_coerced_xml) == ["5"]
    schema = {"items": {"properties": {"n": {"type": ["integer", "null"]}, "b": {"type": "boolean"}}}}
    assert plainly_coerced_csv([{"n": "", "b": "True"}], schema) == [{"n": None, "b": True}]


texts = st.recursive(
    st.one_of(st.none(), st.text(max_size=4), st.sampled_from(["1", "true", "-2.5e3"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abx"), inner, max_size=3)),
)
schemas = st.recursive(
    st.sampled_from([True, {}, INTEGER, STRING, {"type": ["number", "null"]}, {"$ref": "#"}, {"enum": [1, "a"]}]),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda properties: {"properties": properties}, st.dictionaries(st.sampled_from("abx"), inner)),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)),
    ),
)


@given(texts, schemas)
def test_no_value_and_no_schema_make_coercion_raise(value: Any, schema: Any) -> None:
    for document in (coerced_xml(value, schema), plainly_coerced_xml(value, schema)):
        json.dumps(document, allow_nan=False)  # still a JSON document
    records = [{"a": "1", "b": None, None: ["2"]}]
    for table in (coerced_csv(records, {"items": schema}), plainly_coerced_csv(records, {"items": schema})):
        assert [list(record) for record in table] == [["a", "b", None]], "no cell is lost"
