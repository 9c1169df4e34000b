"""The readers of five formats read well-formed texts exactly and refuse hostile texts in little time."""

from __future__ import annotations

import csv
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.graders.formats import MAX_CHARACTERS, Format, FormatError, parse

FORMATS: tuple[Format, ...] = get_args(Format)

#: Text with many of the marks that the parsers search for.
marks = [
    *"[]{}<>/=:,;-?&*!#|'\"\n .0a",
    "- ",
    "a: ",
    "a.",
    "<a>",
    "</a>",
    "<!--",
    "]]>",
    "&a ",
    "*a ",
    "!!python/",
    "\ud800",
]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(marks)).map("".join))


@given(hostile, st.sampled_from(FORMATS))
def test_parse_raises_only_format_errors(text: str, format: Format) -> None:
    problem = ""
    try:
        parse(text, format)
    except FormatError as error:
        problem = str(error)
    assert len(problem) < 300


@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.text()), st.lists, max_leaves=8))
def test_dumped_json_parses_to_the_same_value(value: Any) -> None:
    assert parse(json.dumps(value), "json") == value


@pytest.mark.parametrize(
    ("text", "format", "value"),
    [
        ("a: [1, 2.5, x]\nb: {c: no}\n", "yaml", {"a": [1, 2.5, "x"], "b": {"c": False}}),
        ("base: &b {k: 1}\nmore: {<<: *b, l: 2}\n", "yaml", {"base": {"k": 1}, "more": {"k": 1, "l": 2}}),
        ("[t]\nx = 1\ny = [true, 'a']\n", "toml", {"t": {"x": 1, "y": [True, "a"]}}),
        ('n,m\n1,x\n\n2,"y,z"\n', "csv", [{"n": "1", "m": "x"}, {"n": "2", "m": "y,z"}]),
        ("n,m\n1\n1,2,3\n", "csv", [{"n": "1", "m": None}, {"n": "1", "m": "2", None: ["3"]}]),
        ("n,m", "csv", []),
        ("<r/>", "xml", {"r": None}),
        ("<r>  </r>", "xml", {"r": None}),
        ("<r> a &amp; b </r>", "xml", {"r": "a & b"}),
        ("<r><i>1</i><i/><i>3</i></r>", "xml", {"r": {"i": ["1", None, "3"]}}),
        ('<r k="1">t<i>u</i></r>', "xml", {"r": {"@k": "1", "i": "u", "#text": "t"}}),
        ("<?xml version='1.0'?><!-- c --><r><![CDATA[<x>]]></r>", "xml", {"r": "<x>"}),
    ],
)
def test_a_well_formed_text_parses_to_its_value(text: str, format: Format, value: Any) -> None:
    assert parse(text, format) == value


@pytest.mark.parametrize(
    ("text", "format", "problem"),
    [
        ("```json\n{}\n```", "json", "JSONDecodeError"),
        ("Here it is: {}", "json", "JSONDecodeError"),
        ("[" * 100_000, "json", "RecursionError"),
        ("1" * 5_000, "json", "ValueError"),
        ("a: 1\n---\na: 2\n", "yaml", "expected a single document"),
        ("!!python/object/apply:os.system [ls]", "yaml", "could not determine a constructor"),
        ("a: b: c", "yaml", "mapping values are not allowed here"),
        ("a = 1\na = 2", "toml", "TOMLDecodeError"),
        ('n\n"' + "x" * 200_000, "csv", "field larger than field limit"),
        ("<r>", "xml", "no element found"),
        ("<r/><r/>", "xml", "junk after document element"),
        ('<!DOCTYPE r [<!ENTITY e "x">]><r>&e;</r>', "xml", "entities"),
        ('<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/hostname">]><r>&e;</r>', "xml", "entities"),
        ("", "xml", "no element found"),
        ("[]" + " " * MAX_CHARACTERS, "json", "TooLong"),
    ],
)
def test_a_malformed_text_raises_a_format_error_that_names_the_problem(text: str, format: Format, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse(text, format)


@pytest.mark.parametrize("text", ['n\n"' + "x" * 200_000 + '"\n', '"' + "x" * 200_000 + '"\n1\n'])
def test_the_limit_of_a_csv_cell_does_not_depend_on_the_limit_of_the_process(text: str) -> None:
    before = csv.field_size_limit(1_000_000)
    try:
        with pytest.raises(FormatError, match="field larger than field limit"):
            parse(text, "csv")
    finally:
        csv.field_size_limit(before)


def alias_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (alias_bomb(9), "yaml"),
        ("&a [*a]", "yaml"),
        ("&a {k: *a}", "yaml"),
        ("[" * 50_000, "yaml"),
        ("- " * 50_000 + "a", "yaml"),
        ("? " * 50_000 + "a", "yaml"),
        ("{a: " * 50_000, "yaml"),
        ("".join(f"{' ' * n}a:\n" for n in range(600)), "yaml"),
        ("<a>" * 50_000, "xml"),
        (".".join("a" * 50_000) + " = 1", "toml"),
        ("[" + ".".join("a" * 5_000) + "]\n" + "b = 1\n" * 5_000, "toml"),
        ("a = " + "[" * 50_000, "toml"),
        ("," * 50_000 + "\n" + "x\n" * 50_000, "csv"),
    ],
)
@pytest.mark.usefixtures("processor_limit")
def test_a_text_that_expands_too_much_or_nests_too_deep_is_refused_quickly(text: str, format: Format) -> None:
    with pytest.raises(FormatError):  # what is not refused takes hours, gigabytes or the process
        parse(text, format)


@pytest.mark.parametrize(
    ("unit", "format"),
    [
        ("[1, ", "json"),
        ('"', "json"),
        ("a: {", "yaml"),
        ("- a\n", "yaml"),
        ("k: |\n  text\n", "yaml"),
        ("# c\n", "yaml"),
        ("<a x='1'>", "xml"),
        ("&amp;", "xml"),
        ("a.b = 1\n", "toml"),
        ("'", "toml"),
        ("a . ", "toml"),
        ('"a" ', "toml"),
        ('",', "csv"),
        ("\n", "csv"),
    ],
)
@pytest.mark.usefixtures("processor_limit")
def test_parse_takes_linear_time_on_hostile_text(unit: str, format: Format) -> None:
    text = unit * (300_000 // len(unit))
    try:
        parse(text, format)
    except FormatError:
        pass
