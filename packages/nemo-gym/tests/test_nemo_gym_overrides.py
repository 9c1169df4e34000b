"""Overrides on a command line mean what they mean to Hydra."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ludus_nemo_gym.overrides import deleted_keys, parse_overrides, parse_value

from ludus import UserError

TEXTS = st.text().filter(lambda text: "${" not in text)  # see test_interpolations_stay_as_typed
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
JSON_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON_SCALARS = st.none() | st.booleans() | JSON_NUMBERS | TEXTS
KEYS = st.from_regex(r"[A-Za-z_][\w./-]*", fullmatch=True, alphabet=st.characters(max_codepoint=127)).filter(
    lambda key: key.lower() not in ("true", "false", "null", "nan", "inf")
)


def trees(scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)

    return st.recursive(scalars, containers, max_leaves=12)


def quoted(text: str) -> str:
    """A text in quotes: backslashes before a quote, or at the end, are doubled."""
    parts: list[str] = []
    backslashes = 0
    for sign in text:
        if sign == "'":
            parts.append("\\" * (backslashes + 1))
        backslashes = backslashes + 1 if sign == "\\" else 0
        parts.append(sign)
    return "'" + "".join(parts) + "\\" * backslashes + "'"


def typed(value: Any) -> str:
    """A value as a user types it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(typed, value)) + "]"
    return "{" + ",".join(f"{key}: {typed(item)}" for key, item in value.items()) + "}"


@settings(deadline=None)
@given(trees(SCALARS, KEYS))
@example("\\")
@example("'\\'\\\\'")
@example([{"a": "b]"}, "}", ","])
def test_every_value_can_be_typed_and_is_read_back(value: Any):
    read = parse_value(typed(value))
    assert read == value
    assert type(read) is type(value)


@given(st.dictionaries(st.text(), trees(JSON_SCALARS, st.text()), min_size=1, max_size=4))
@example({"temperature": 0.5, "a.b": "line\nbreak"})
def test_a_json_object_is_read_as_json(value: dict[str, Any]):
    assert parse_value(json.dumps(value)) == value


@settings(deadline=None)
@given(st.text())
@example("[" * 5000)
@example("${" * 1000)
def test_any_text_is_parsed_or_refused(text: str):
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
        ("C:\\a\\", "C:\\a\\"),
        ("[]", []),
        ("{}", {}),
        ("[http://a:1/v1,http://b/v1]", ["http://a:1/v1", "http://b/v1"]),
        ("{url:http://a:1/v1}", {"url": "http://a:1/v1"}),
        ('{"temperature": 0.5, "top_p": 1}', {"temperature": 0.5, "top_p": 1}),
        ("http://h/v1?a=1&b=(2)", "http://h/v1?a=1&b=(2)"),
        ("{1: a, b: {c: [x y]}}", {"1": "a", "b": {"c": ["x y"]}}),
        ("-inf", -math.inf),
    ],
)
def test_a_value_has_the_type_it_looks_like(text: str, value: Any):
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${oc.env:A,{}}", "${oc.env:A,{}}"),
        ("[${a},x${b.${c}}]", ["${a}", "x${b.${c}}"]),
        ("'${a}, ${b}'", "${a}, ${b}"),
        (r"\${a}", r"\${a}"),
        (r"'\\\${a} it\'s'", r"\\\${a} it's"),
        ("{a: ${b}}", {"a": "${b}"}),
    ],
)
def test_interpolations_stay_as_typed(text: str, value: Any):
    assert parse_value(text) == value


def test_nan_is_a_number():
    assert math.isnan(parse_value("nan"))


@pytest.mark.parametrize("text", ["a,b", "[a", "[a,]", "[,]", "{a}", "{a:}", "{:1}", "'a", "[a]b", "${a", "{a:1,}"])
def test_a_value_that_hydra_refuses_is_refused_with_something_to_type(text: str):
    with pytest.raises(UserError, match=r"^\+key: .*(quotes|''|'\+key)"):
        parse_overrides([f"+key={text}"])


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_the_three_prefixes_mean_the_same(prefix: str):
    assert parse_overrides([f"{prefix}a.b.c=1"]) == {"a": {"b": {"c": 1}}}


@pytest.mark.parametrize("argument", ["a", "+=1", "+a..b=1", "--limit=3", "~a=1", "+++a=1", "-v", "~", "~a..b", "+~a"])
def test_a_malformed_override_is_refused_with_an_example(argument: str):
    with pytest.raises(UserError, match=r"must look like \+key=value"):
        parse_overrides([argument])


def test_later_overrides_win_and_mappings_are_merged():
    given = ["+a.b=1", "+a={c: 2}", "++a.b=3", "+d=[1]", "+d=[2]"]
    assert parse_overrides(given) == {"a": {"b": 3, "c": 2}, "d": [2]}


def test_a_mapping_cannot_be_merged_into_a_list():
    with pytest.raises(UserError, match=r"a.b is a list in one place and a mapping in another"):
        parse_overrides(["+a.b=[1]", "+a.b.c=2"])


def test_a_tilde_deletes_a_key():
    given = ["+a=1", "~b.c", "~d"]
    assert parse_overrides(given) == {"a": 1}
    assert deleted_keys(given) == ["b.c", "d"]


@pytest.mark.parametrize("argument", ["+policy_api_key=[sk-very-secret", "~policy_api_key=sk-very-secret"])
def test_an_error_does_not_show_the_value_of_a_secret(argument: str):
    with pytest.raises(UserError) as caught:
        parse_overrides([argument])
    assert "sk-very" not in str(caught.value)
