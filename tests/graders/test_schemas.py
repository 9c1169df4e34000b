"""Schemas: which values fit, what `strict` adds, and that no reference is fetched."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import UserError
from ludus.graders.schemas import Validator, is_tree, strict, strict_without_lists

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)
keywords = [
    "type",
    "properties",
    "items",
    "anyOf",
    "required",
    "enum",
    "$ref",
    "minimum",
    "pattern",
    "uniqueItems",
    "not",
]
schemas = st.recursive(
    st.one_of(st.booleans(), st.sampled_from([{"type": "string"}, {"type": ["integer", "null"]}, {"minimum": 1}])),
    lambda inner: st.dictionaries(st.sampled_from(keywords), st.one_of(inner, st.lists(inner), values), max_size=4),
    max_leaves=8,
)
A = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"type": "object", "properties": {"b": {"type": "string"}}}


def fits(value: Any, schema: Any) -> bool:
    return Validator(strict(schema)).problem(value) is None


@given(schemas, values)
def test_no_schema_and_no_value_make_a_validator_raise(schema: Any, value: Any) -> None:
    for form in (schema, strict(schema)):
        for problem in (Validator(form).problem(value), Validator(form, openapi=True).problem(value)):
            assert problem is None or isinstance(problem, str)
    assert is_tree(schema) in (True, False)


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ({"a": 1}, A, True),
        ({}, A, False),
        ({"a": 1, "c": 2}, A, False),
        ({"a": 1.0}, A, True),
        ({"a": True}, A, False),
        ({"a": 1}, {**A, "required": [], "additionalProperties": True}, True),
        ({}, {**A, "required": [], "additionalProperties": True}, False),
        ({"x": {"a": 1}}, {"type": "object", "additionalProperties": A}, True),
        ({"x": {}}, {"type": "object", "additionalProperties": A}, False),
        ([{"a": 1}], {"type": "array", "prefixItems": [A]}, True),
        ([{}], {"type": "array", "prefixItems": [A]}, False),
        ({"a": 1}, {"anyOf": [A, B]}, True),
        ({"b": "x"}, {"oneOf": [A, B]}, True),
        ({}, {"anyOf": [A, B]}, False),
        ({"c": 1}, {"anyOf": [A, B]}, False),
        ({"a": 1, "c": 1}, {"oneOf": [A, B]}, False),
        ({"a": 1, "b": "x"}, {"allOf": [A, B]}, True),
        ({"a": 1}, {"allOf": [A, B]}, False),
        ({"a": 1, "b": "x", "c": 1}, {"allOf": [A, B]}, False),
        ({"k": 1, "a": 1}, {"properties": {"k": {}}, "oneOf": [A, B]}, True),
        ({"k": 1}, {"properties": {"k": {}}, "oneOf": [A, B]}, False),
        ("text", {"anyOf": [A, {"type": "string"}]}, True),
        ({"properties": "x"}, {"properties": {"properties": {"type": "string"}}}, True),
        ({"required": 1}, {"properties": {"required": {"type": "integer"}}}, True),
        ({"a": 1}, {"not": {"properties": {"a": {"const": 2}}}, **A}, True),
        ({"a": 2}, {"not": {"properties": {"a": {"const": 2}}}, **A}, False),
        ({"d": {"a": 1}}, {"$defs": {"p": A}, "properties": {"d": {"$ref": "#/$defs/p"}}}, True),
        ({"d": {}}, {"$defs": {"p": A}, "properties": {"d": {"$ref": "#/$defs/p"}}}, False),
    ],
)
def test_a_strict_schema_requires_its_properties_and_allows_no_others(value: Any, schema: Any, expected: bool) -> None:
    assert fits(value, schema) is expected


def test_conditions_keep_their_meaning_when_a_schema_is_made_strict() -> None:
    schema = {
        "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}},
        "if": {"properties": {"kind": {"const": "big"}}},
        "then": {"properties": {"n": {"minimum": 10}}},
        "else": {"properties": {"n": {"maximum": 9}}},
    }
    assert fits({"kind": "big", "n": 10}, schema)
    assert fits({"kind": "small", "n": 9}, schema)
    assert not fits({"kind": "big", "n": 9}, schema)
    assert not fits({"kind": "small", "n": 10}, schema)


def test_strict_without_lists_changes_nothing_inside_lists() -> None:
    assert strict_without_lists({"anyOf": [A]}) == {"anyOf": [A]}
    closed = {**A, "required": ["a"], "additionalProperties": False}
    assert strict_without_lists({"items": A}) == {"items": closed} == strict({"items": A})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"type": []},
        {"properties": [1]},
        {"required": "a"},
        {"required": ["a", "a"]},
        {"minLength": -1},
        {"anyOf": []},
        {"pattern": "("},
        {"items": {"minimum": "1"}},
        5,
        None,
    ],
)
def test_no_value_fits_an_invalid_schema(schema: Any) -> None:
    validator = Validator(schema)
    assert validator.schema_problem is not None
    assert validator.schema_problem.startswith("SchemaError")
    assert validator.problem({}) == validator.schema_problem


@pytest.mark.parametrize("schema", [True, {}, {"unknown": 1}, {"type": "string", "pattern": "^a"}, {"minItems": 1.0}])
def test_a_valid_schema_has_no_schema_problem(schema: Any) -> None:
    assert Validator(schema).schema_problem is None


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/schema.json", "file:///etc/hostname", "#/nowhere", "other"])
def test_a_reference_is_never_fetched(reference: str) -> None:
    problem = Validator({"$ref": reference}).problem({})
    assert problem is not None
    assert "nresolvable" in problem or "PointerToNowhere" in problem


def test_validating_a_self_reference_ends_with_a_recursion_error() -> None:
    assert "RecursionError" in (Validator({"$ref": "#"}).problem({}) or "")


@pytest.mark.usefixtures("processor_limit")
def test_errors_have_the_text_of_the_library_also_for_large_schemas_and_values() -> None:
    short = Validator({"type": "integer"}).problem("x")
    assert short == (
        "ValidationError: 'x' is not of type 'integer'\n\nFailed validating 'type' in schema:\n"
        "    {'type': 'integer'}\n\nOn instance:\n    'x'"
    )
    large = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20_000)}, "required": ["q"]}
    problem = Validator(large).problem(dict.fromkeys(map(str, range(20_000)), "x"))
    assert problem is not None
    assert problem.startswith(
        "ValidationError: 'q' is a required property\n\nFailed validating 'required' in schema:\n"
    )
    assert len(problem) <= 200 + len("ValidationError: ")


def test_a_discriminator_picks_the_schema_only_with_openapi() -> None:
    schema = {
        "$defs": {"a": A, "b": B},
        "discriminator": {"propertyName": "b", "mapping": {"x": "#/$defs/b"}},
        "anyOf": [{"$ref": "#/$defs/a"}],
    }
    assert Validator(schema, openapi=True).problem({"a": "y", "b": "x"}) is None
    assert Validator(schema, openapi=True).problem({"a": 1}) is not None
    assert Validator(schema).problem({"a": "y", "b": "x"}) is not None


def test_is_tree_accepts_only_schemas_that_check_each_value_once() -> None:
    assert is_tree({**A, "items": A, "prefixItems": [A], "description": "pattern"})
    assert is_tree({"properties": {"pattern": {"type": "string"}, "$ref": True}})
    for schema in ({"$ref": "#"}, {"items": {"pattern": "a"}}, {"anyOf": [A]}, {"properties": {"a": {"not": {}}}}, 5):
        assert not is_tree(schema)


def test_a_missing_jsonschema_raises_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    monkeypatch.delitem(sys.modules, "ludus.graders.schemas")
    with pytest.raises(UserError, match=r"pip install .*\[structured\]'"):
        importlib.import_module("ludus.graders.schemas")
