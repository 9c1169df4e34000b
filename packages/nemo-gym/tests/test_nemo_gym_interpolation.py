"""`${...}` is replaced by the value that it names, and every missing value is reported at once."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ludus_nemo_gym.interpolation import resolve
from ludus_nemo_gym.masking import masked
from omegaconf import OmegaConf

from ludus import UserError


def escaped(text: str) -> str:
    """A text in which every `${` is escaped."""
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", text)


@given(st.text())
@example("\\${a}")
@example("\\\\${a} and ${b}")
@example("$${")
def test_an_escaped_text_resolves_to_the_text(text: str):
    assert resolve({"a": escaped(text)}).tree == {"a": text}


@settings(deadline=None)
@given(st.text("${}\\abc:.,[]'\" 0"))
@example("${" * 3000)
@example("${a" + "}" * 100)
def test_any_text_is_resolved_or_refused(text: str):
    with contextlib.suppress(UserError):
        assert resolve({"a": text, "b": {"c": 1}}).tree.keys() == {"a", "b"}


@st.composite
def chains(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """A tree of texts that refer to texts before them, and the value of each."""
    tree: dict[str, Any] = {}
    expected: dict[str, str] = {}
    words = st.text("abc ,'\"\\", max_size=5).filter(lambda text: not text.endswith("\\"))
    for number in range(draw(st.integers(1, 8))):
        text = value = draw(words)
        for _ in range(draw(st.integers(0, 3)) if expected else 0):
            name, literal = draw(st.sampled_from(sorted(expected))), draw(words)
            digits = name.removeprefix("k")
            text += draw(
                st.sampled_from(
                    [
                        f"${{{name}}}",
                        f"${{oc.env:LUDUS_NOT_SET,${{{name}}}}}",
                        f"${{oc.select:k${{oc.env:LUDUS_NOT_SET,{digits}}}}}",
                    ]
                )
            )
            text += literal
            value += expected[name] + literal
        tree[f"k{number}"], expected[f"k{number}"] = text, value
    return tree, expected


@settings(deadline=None)
@given(chains())
def test_texts_that_refer_to_each_other_are_resolved_in_any_order(chain: tuple[dict[str, Any], dict[str, str]]):
    tree, expected = chain
    assert resolve(dict(reversed(tree.items()))).tree == expected


@settings(deadline=None)
@given(st.integers(2, 30), st.integers(0, 29))
def test_a_circle_of_any_size_is_found(size: int, start: int):
    tree = {f"k{number}": f"${{k{(number + 1) % size}}}" for number in range(size)}
    tree["entry"] = f"${{k{start % size}}}"
    with pytest.raises(UserError, match="leads back to itself"):
        resolve(tree)


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"b": "${a}"}},
        {"a": "${b}", "b": {"c": "${a}"}},
        {"a": {"x": "${b}"}, "b": {"y": "${a}"}},
        {"a": ["${a[0]}"]},
        {"a": "x${oc.env:LUDUS_NOT_SET,${a}}"},
        {"a": "${b.${a}}"},
    ],
)
def test_a_circle_through_mappings_lists_and_defaults_is_found(tree: dict[str, Any]):
    with pytest.raises(UserError, match=r"^[ab]\S*: .*leads back to itself"):
        resolve(tree)


def test_a_whole_value_keeps_its_type_and_a_value_inside_a_text_becomes_text():
    tree = {"n": 4, "l": [1, {"m": "${n}"}], "a": "${l}", "b": "x${n}${t}", "t": True, "c": "${l[1].m}", "d": "${l.0}"}
    assert resolve(tree).tree == {
        "n": 4,
        "l": [1, {"m": 4}],
        "a": [1, {"m": 4}],
        "b": "x4True",
        "t": True,
        "c": 4,
        "d": 1,
    }


def test_a_leading_dot_refers_to_a_key_beside_and_a_list_inside_a_text_becomes_text():
    tree = {"a": {"b": "${.c}", "c": 1, "d": {"e": "${..c}"}}, "l": [1], "t": "x${l}"}
    assert resolve(tree).tree == {"a": {"b": 1, "c": 1, "d": {"e": 1}}, "l": [1], "t": "x[1]"}


def test_two_references_to_a_mapping_do_not_share_it():
    tree = resolve({"a": {"x": []}, "b": "${a}", "c": "${a}"}).tree
    tree["b"]["x"].append(1)
    assert tree["a"] == tree["c"] == {"x": []}


def test_an_escaped_backslash_escapes_nothing():
    assert resolve({"a": r"\\${b}", "b": 1}).tree["a"] == "\\1"
    assert resolve({"a": r"\\\${b}", "b": 1}).tree["a"] == r"\${b}"
    assert resolve({"a": r"\n ${b}", "b": 1}).tree["a"] == r"\n 1"


def test_environment_variables_and_their_defaults_are_texts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TEST_PORT", "80")
    tree = {"a": "${oc.env:LUDUS_TEST_PORT}", "b": "${oc.env:LUDUS_NOT_SET,7}", "c": "${oc.env:LUDUS_NOT_SET,null}"}
    tree["d"] = "http://${oc.env:LUDUS_NOT_SET,'h,1'}:${oc.env:LUDUS_TEST_PORT}/${oc.env:LUDUS_NOT_SET,''}"
    assert resolve(tree).tree == {"a": "80", "b": "7", "c": None, "d": "http://h,1:80/"}


def test_values_of_secret_variables_are_secrets_also_when_they_are_defaults(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TEST_API_KEY", "sk-from-environment")
    tree = {
        "a": "Bearer ${oc.env:LUDUS_TEST_API_KEY,unused}",
        "b": "Bearer ${oc.env:LUDUS_NOT_SET_TOKEN, 'sk-quoted'}",
        "c": "${oc.env:LUDUS_NOT_SET_TOKEN,${d}}",
        "d": "sk-nested",
        "e": "${oc.env:LUDUS_NOT_SET,no-secret}",
    }
    assert resolve(tree).secrets == {"sk-from-environment", "sk-quoted", "sk-nested"}


def test_every_missing_value_is_reported_with_the_path_that_needs_it():
    tree = {"a": "${x}", "b": {"c": ["${oc.env:LUDUS_NOT_SET}"]}, "d": "${m}", "m": "???", "e": "${a}", "n": 1}
    tree |= {"f": "${n.o}", "g": {"h": "${.i}"}, "j": "${k}", "k": {"l": "${y}"}}
    resolved = resolve(tree)
    assert resolved.absent == {
        "x": "a",
        "oc.env:LUDUS_NOT_SET": "b.c[0]",
        "m": "d",
        "n.o": "f",
        "g.i": "g.h",
        "y": "j.l",
    }
    assert resolved.tree["a"] == "${x}"
    assert resolved.tree["j"] == {"l": "${y}"}


@pytest.mark.parametrize("text", ["${", "${}", "${a b}", "${oc.nothing:1}", "${oc.env:}", "${...a}", "${k${l}}"])
def test_an_interpolation_that_cannot_be_read_is_an_error_with_its_path(text: str):
    with pytest.raises(UserError, match=r"^here\.it: ") as caught:
        resolve({"here": {"it": f"sk-secret{text}"}, "l": []})
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "secret"),
    [
        ({"which": "MY_API_KEY", "header": "${oc.env:${which}}"}, "sk-SECRETSECRET"),
        ({"header": "${oc.env:NO_API_KEY,'sk-$abc12345678'}"}, "sk-$abc12345678"),
        ({"header": '${oc.env:NO_API_KEY,"sk-it\'sSECRET123"}'}, "sk-it'sSECRET123"),
        ({"base": "sk-DEFAULT12345", "header": "Bearer ${oc.env:NO_API_KEY,${base}}"}, "sk-DEFAULT12345"),
        ({"header": "${oc.env:MY_API_KEY}-${nope}", "x": "sk-SECRETSECRET"}, "sk-SECRETSECRET"),
    ],
)
def test_a_secret_from_the_environment_is_known_however_it_was_named(monkeypatch, tree, secret):
    monkeypatch.setenv("MY_API_KEY", "sk-SECRETSECRET")
    found = resolve(tree)
    assert secret in found.secrets
    assert secret not in str(masked(found.tree, found.secrets))


def test_the_older_omegaconf_that_hydra_needs_resolves_too(monkeypatch):
    register = OmegaConf.register_resolver
    monkeypatch.setattr(OmegaConf, "register_new_resolver", register)
    monkeypatch.setattr(OmegaConf, "register_resolver", lambda name, resolver: None)  # as in OmegaConf 2.3
    monkeypatch.setenv("LUDUS_API_KEY", "secret")
    resolved = resolve({"a": "${oc.env:LUDUS_API_KEY}"})
    assert (resolved.tree, resolved.secrets) == ({"a": "secret"}, {"secret"})
