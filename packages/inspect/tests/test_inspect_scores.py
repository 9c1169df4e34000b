"""What scores are worth, and which are none."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_inspect.scores import failure_of_error, number_of, verdict_of

from ludus.errors import Failure

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(),
    st.lists(st.integers(), max_size=2),
)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        ("N", 0.0),
        ("yes", 1.0),
        ("False", 0.0),
        ("0.75", 0.75),
        (True, 1.0),
        (3, 3.0),
    ],
)
def test_values_mean_what_they_mean_in_inspect(value: Any, number: float) -> None:
    assert number_of(value) == number


@given(st.dictionaries(st.text(min_size=1), st.one_of(values, st.dictionaries(st.text(), values)), min_size=1))
def test_a_reward_is_finite_or_there_is_none(scores: dict[str, Any]) -> None:
    result = {"scores": {name: {"value": value} for name, value in scores.items()}}
    with contextlib.suppress(Failure):
        assert math.isfinite(verdict_of(result).reward)


def test_a_score_can_be_chosen() -> None:
    result = {"scores": {"first": {"value": "C"}, "second": {"value": {"a": 0.25, "b": "P"}}}}
    assert verdict_of(result).reward == 1.0
    assert verdict_of(result, "second").reward == 0.25
    assert verdict_of(result, "second.b").reward == 0.5
    assert verdict_of(result, "b").reward == 0.5
    with pytest.raises(Failure, match="there is no score c .*first, second.a, second.b"):
        verdict_of(result, "c")


def test_the_name_of_a_value_may_hold_dots() -> None:
    result = {"scores": {"length": {"value": {"max.": 1.0, "at.most": 0.5}, "answer": "short"}}}
    assert verdict_of(result).reward == 1.0
    assert verdict_of(result, "length.at.most").reward == 0.5
    assert verdict_of(result).values["score_answer"] == "short"


def test_no_score_at_all_is_no_reward() -> None:
    with pytest.raises(Failure, match="no scorer gave a score"):
        verdict_of({"scores": {}})


def test_an_exception_names_the_line_of_its_author() -> None:
    traceback = 'File "/x/inspect_ai/a.py", line 3, in b\nFile "/home/me/task.py", line 7, in solve\n'
    failure = failure_of_error({"error": {"text": "boom", "traceback": traceback}, "scored": False})
    assert failure is not None
    assert (failure.stage, failure.where) == ("agent", "task.py:7 in solve")
    assert failure_of_error({"error": None}) is None
