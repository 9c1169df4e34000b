"""`${...}` stands for what it names, however it is nested, and never for itself."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ludus_nemo_gym.interpolation import resolve

from ludus import UserError


def escaped(text: str) -> str:
    """A text in which every `${` means nothing."""
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", text)


@given(st.text())
@example("\\${a}")
@example("\\\\${a} and ${b}")
@example("$${")
def test_an_escaped_text_is_itself(text: str):
    assert resolve({"a": escaped(text)}).tree == {"a": text}


@given(st.text("${}\\abc:.,[]'\" 0"))
@example("${" * 3000)
@example("${a" + "}" * 100)
def test_no_text_does_anything_but_resolve_or_be_refused(text: str):
    with contextlib.suppress(UserError):
        assert resolve({"a": text, "b": {"c": 1}}).tree.keys() == {"a", "b"}


@st.composite
def towers(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """Texts that name texts before them, as a tree, and what each of them must become."""
    tree: dict[str, Any] = {}
    meant: dict[str, str] = {}
    words = st.text("abc ,'\"\\", max_size=5).filter(lambda text: not text.endswith("\\"))
    for number in range(draw(st.integers(1, 8))):
        text = result = draw(words)
        for _ in range(draw(st.integers(0, 3)) if meant else 0):
            name, literal = draw(st.sampled_from(sorted(meant))), draw(words)
            form = draw(st.sampled_from(["${%s}", "${oc.env:LUDUS_NOT_SET,${%s}}", "${k${oc.env:LUDUS_NOT_SET,%s}}"]))
            if form.startswith("${k"):
                text += form % name[1:] + literal
            else:
                text += form % name + literal
            result += meant[name] + literal
        tree[f"k{number}"], meant[f"k{number}"] = text, result
    return tree, meant


@given(towers())
def test_texts_that_name_each_other_become_what_they_say(tower: tuple[dict[str, Any], dict[str, str]]):
    tree, meant = tower
    assert resolve(dict(reversed(tree.items()))).tree == meant


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
        {"a": ["${a[0]}"]},
        {"a": "x${oc.env:LUDUS_NOT_SET,${a}}"},
        {"a": "${b.${a}}"},
    ],
)
def test_a_circle_through_anything_is_found(tree: dict[str, Any]):
    with pytest.raises(UserError, match="leads back to itself"):
        resolve(tree)


def test_a_whole_value_keeps_its_type_and_a_part_of_a_text_is_written_out():
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


def test_a_value_in_two_places_is_two_values():
    tree = resolve({"a": {"x": []}, "b": "${a}", "c": "${a}"}).tree
    tree["b"]["x"].append(1)
    assert tree["a"] == tree["c"] == {"x": []}


def test_a_backslash_that_is_itself_escaped_escapes_nothing():
    assert resolve({"a": r"\\${b}", "b": 1}).tree["a"] == "\\1"
    assert resolve({"a": r"\\\${b}", "b": 1}).tree["a"] == r"\${b}"
    assert resolve({"a": r"\n ${b}", "b": 1}).tree["a"] == r"\n 1"


def test_variables_come_from_the_environment_as_texts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUDUS_TEST_PORT", "80")
    tree = {"a": "${oc.env:LUDUS_TEST_PORT}", "b": "${oc.env:LUDUS_NOT_SET,7}", "c": "${oc.env:LUDUS_NOT_SET,null}"}
    tree["d"] = "http://${oc.env:LUDUS_NOT_SET,'h,1'}:${oc.env:LUDUS_TEST_PORT}/${oc.env:LUDUS_NOT_SET,}"
    assert resolve(tree).tree == {"a": "80", "b": "7", "c": None, "d": "http://h,1:80/"}


def test_everything_absent_is_told_at_once_with_who_asked():
    resolved = resolve({"a": "${x}", "b": {"c": ["${oc.env:LUDUS_NOT_SET}"]}, "d": "${m}", "m": "???", "e": "${a}"})
    assert resolved.absent == {"x": "a", "oc.env:LUDUS_NOT_SET": "b.c[0]", "m": "d"}
    assert resolved.tree["a"] == "${x}"


@pytest.mark.parametrize("text", ["${", "${}", "${a b}", "${oc.nothing:1}", "${oc.env:}", "${.a}", "x${l}"])
def test_what_cannot_be_read_is_an_error_that_names_the_place(text: str):
    with pytest.raises(UserError, match=r"^here\.it: "):
        resolve({"here": {"it": text}, "l": []})
