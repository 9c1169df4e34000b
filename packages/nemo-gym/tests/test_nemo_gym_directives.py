"""Directives build one part of a configuration from another."""

from __future__ import annotations

from typing import Any

import pytest
from ludus_nemo_gym.directives import apply_directives

from ludus import UserError


def test_inherit_from_moves_the_source_and_the_keys_beside_it_override_the_source():
    applied = apply_directives({"a": {"x": 1, "y": {"z": 2}}, "b": {"_inherit_from": "a", "x": 5, "y": {"w": 3}}})
    assert applied.tree == {"b": {"x": 5, "y": {"z": 2, "w": 3}}}
    assert applied.moved == {"a": "b"}


def test_copy_keeps_the_source():
    applied = apply_directives({"a": {"x": {"y": [1]}}, "b": {"_copy": "a.x", "w": 2}})
    assert applied.tree == {"a": {"x": {"y": [1]}}, "b": {"y": [1], "w": 2}}
    applied.tree["b"]["y"].append(2)
    assert applied.tree["a"]["x"]["y"] == [1]


def test_directives_written_as_values_accept_lists_and_numbers_too():
    tree = {"a": {"n": 4, "l": [1]}, "b": "${copy:a.n}", "c": "${inherit_from:a.l}"}
    assert apply_directives(tree).tree == {"a": {"n": 4}, "b": 4, "c": [1]}


def test_two_mappings_may_inherit_from_one_source():
    tree = {"a": {"x": 1}, "b": {"_inherit_from": "a"}, "c": {"_inherit_from": "a", "y": 2}}
    assert apply_directives(tree).tree == {"b": {"x": 1}, "c": {"x": 1, "y": 2}}


def test_a_source_may_have_directives_and_stand_anywhere():
    tree = {"c": {"_copy": "b", "z": 3}, "b": {"_inherit_from": "a", "y": 2}, "a": {"x": 1}, "d": {"_copy": "b.x.q"}}
    tree["a"] = {"x": {"q": {"deep": True}}}
    assert apply_directives(tree).tree == {
        "c": {"x": {"q": {"deep": True}}, "y": 2, "z": 3},
        "b": {"x": {"q": {"deep": True}}, "y": 2},
        "d": {"deep": True},
    }


def test_delete_key_is_applied_after_inheriting():
    tree = {"a": {"x": 1, "y": {"p": 1, "q": 2}, "z": 3}, "b": {"_inherit_from": "a", "_delete_key": "x, y.p"}}
    assert apply_directives(tree).tree == {"b": {"y": {"q": 2}, "z": 3}}
    assert apply_directives({"a": {"x": 1, "y": 2, "_delete_key": ["x"]}}).tree == {"a": {"y": 2}}


def test_deleting_a_missing_key_is_noted():
    applied = apply_directives({"a": {"x": 1, "_delete_key": "w"}})
    assert applied.tree == {"a": {"x": 1}}
    assert applied.notes == ["a: _delete_key: there is no w"]


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"_copy": "a"}},
        {"a": {"b": {"_copy": "a"}}},
        {"a": {"_copy": "b"}, "b": {"_copy": "a"}},
        {"a": {"k": {"_inherit_from": "b"}}, "b": {"_inherit_from": "a"}},
        {"a": {"_copy": ""}},
    ],
)
def test_a_circle_is_an_error(tree: dict[str, Any]):
    with pytest.raises(UserError, match="leads back to itself"):
        apply_directives(tree)


def test_a_missing_source_is_an_error_that_suggests_the_nearest_name():
    with pytest.raises(UserError, match=r"b: _inherit_from: there is no math_jugde. Did you mean math_judge\?"):
        apply_directives({"math_judge": {}, "b": {"_inherit_from": "math_jugde"}})


def test_keys_beside_a_directive_cannot_be_merged_with_a_number():
    with pytest.raises(UserError, match="cannot be merged"):
        apply_directives({"a": 1, "b": {"_copy": "a", "x": 2}})
