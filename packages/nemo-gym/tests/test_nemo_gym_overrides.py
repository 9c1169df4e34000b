"""Overrides on a command line mean what Hydra says they mean."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ludus_nemo_gym.overrides import parse_override, parse_overrides, parse_value

from ludus import UserError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4),
    max_leaves=12,
)


def quoted(text: str, quote: str = "'") -> str:
    """A text in quotes: what stands before a quote, or at the end, is doubled."""
    parts = []
    slashes = 0
    for sign in text:
        slashes = slashes + 1 if sign == "\\" else 0
        if sign == quote:
            run = 0
            while parts and parts[-1] == "\\":
                parts.pop()
                run += 1
            parts.append("\\" * (2 * run + 1))
        parts.append(sign)
    return quote + "".join(parts) + "\\" * slashes + quote


def written(value: Any) -> str:
    """A value as one would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return "{" + ",".join(f"{quoted(key, chr(34))}: {written(item)}" for key, item in value.items()) + "}"


@given(VALUES)
@example("\\")
@example("'\\'\\\\'")
@example([{"a": "b]"}, "}", ","])
def test_every_value_can_be_typed_and_is_read_back(value: Any):
    read = parse_value(written(value))
    assert read == value
    assert type(read) is type(value)


@given(st.text())
@example("[" * 5000)
@example("${" * 5000)
def test_no_text_does_anything_but_parse_or_be_refused(text: str):
    with contextlib.suppress(UserError):
        parse_value(text)


@given(st.text(st.characters(categories=("L",)), min_size=1), st.text(st.characters(categories=("L",)), min_size=1))
def test_words_need_no_quotes_whatever_stands_between_them(first: str, second: str):
    for between in (" ", "/", ":", "-", "=", "@", "?", "(", "]", "}", ".", "'", '"'):
        text = f"x{first}{between}{second}x"
        assert parse_value(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("4", 4),
        ("-1_000", -1000),
        ("007", "007"),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("1.", 1.0),
        ("TRUE", True),
        ("Null", None),
        ("None", "None"),
        ("'4'", "4"),
        ("  a b  ", "a b"),
        (r"a\,b", "a,b"),
        (r"\[a\]", "[a]"),
        (r"\4", r"\4"),
        (r"\ a\  ", " a "),
        ("[]", []),
        ("{}", {}),
        ("[http://a:1/v1,http://b/v1]", ["http://a:1/v1", "http://b/v1"]),
        ("{url:http://a:1/v1}", {"url": "http://a:1/v1"}),
        ('{"temperature": 0.5, "top_p": 1}', {"temperature": 0.5, "top_p": 1}),
        ("${oc.env:A,{}}", "${oc.env:A,{}}"),
        ("[${a},x${b.${c}}]", ["${a}", "x${b.${c}}"]),
        ("-inf", -math.inf),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: Any):
    assert parse_value(text) == value


def test_not_a_number_is_one():
    assert math.isnan(parse_value("nan"))


@pytest.mark.parametrize("text", ["a,b", "[a", "[a,]", "[,]", "{a}", "{a:}", "{:1}", "'a", "[a]b", "${a", "{a:1,}"])
def test_what_hydra_would_refuse_is_refused_with_something_to_type(text: str):
    with pytest.raises(UserError, match=r"\+key|quotes|''"):
        parse_override(f"+key={text}")


@pytest.mark.parametrize("how", ["", "+", "++"])
def test_the_three_ways_to_begin_mean_the_same(how: str):
    assert parse_override(f"{how}a.b.c=1") == (["a", "b", "c"], 1)


@pytest.mark.parametrize("argument", ["a", "+=1", "+a..b=1", "--limit=3", "~a=1", "+++a=1", "-v"])
def test_what_is_no_override_says_how_one_looks(argument: str):
    with pytest.raises(UserError, match=r"must look like \+key=value"):
        parse_overrides([argument])


def test_later_overrides_win_and_mappings_are_merged():
    given = ["+a.b=1", "+a={c: 2}", "++a.b=3", "+d=[1]", "+d=[2]"]
    assert parse_overrides(given) == {"a": {"b": 3, "c": 2}, "d": [2]}


def test_an_error_does_not_show_the_value_of_a_secret():
    with pytest.raises(UserError) as caught:
        parse_override("+policy_api_key=[sk-very-secret")
    assert "sk-very" not in str(caught.value)
    with pytest.raises(UserError) as caught:
        parse_override("~policy_api_key=sk-very-secret")
    assert "sk-very" not in str(caught.value)
