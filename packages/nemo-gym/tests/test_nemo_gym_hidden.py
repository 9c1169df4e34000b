"""Secrets travel in environment variables: a tree without them can be written down, and gets them back."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_nemo_gym.hidden import hide, reveal

from ludus import UserError

KEY = "sk-0123456789abc"
KEYS = st.sampled_from(["api_key", "password", "hf_token", "url", "size", "a.b", "nested"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([KEY, f"Bearer {KEY}"])
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(TREES)
def test_a_hidden_tree_holds_no_secret_and_is_revealed_unchanged(tree: Any) -> None:
    variables: dict[str, str] = {}
    hidden = hide(tree, [KEY], variables)
    assert KEY not in json.dumps(hidden)
    with patch.dict(os.environ, variables):
        assert reveal(hidden) == tree


def test_every_value_below_a_secret_name_is_hidden_and_placeholders_stay() -> None:
    variables: dict[str, str] = {}
    tree = {"credentials": {"user": "me", "pin": 1234}, "api_key": "???", "max_tokens": 5, "other_key": None}
    hidden = hide(tree, [], variables)
    assert sorted(variables.values()) == ['"me"', "1234"]
    assert (hidden["api_key"], hidden["max_tokens"], hidden["other_key"]) == ("???", 5, None)


def test_one_value_in_two_places_has_one_variable_and_two_values_of_one_name_have_two() -> None:
    variables: dict[str, str] = {}
    hide({"a": {"api_key": "x"}, "b": {"api_key": "x"}}, [], variables)
    hide({"a": {"api_key": "y"}}, [], variables)
    assert variables == {"LUDUS_SETTING_A_API_KEY": '"x"', "LUDUS_SETTING_A_API_KEY_": '"y"'}


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_SETTING_A", raising=False)
    with pytest.raises(UserError, match="LUDUS_SETTING_A is not set"):
        reveal({"a": "${oc.env:LUDUS_SETTING_A}"})
