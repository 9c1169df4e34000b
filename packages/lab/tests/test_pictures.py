"""Questions about pictures: rows that follow from the seed, exact answers, and points by distance."""

from __future__ import annotations

import base64
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import needs_installed, oracle_rewards
from ludus_lab.pictures.generate import KINDS, stream
from ludus_lab.pictures.resources import _distance

from ludus import UserError
from ludus.environment import Environment
from ludus.testing import judge

POINT = {"responses_create_params": {"input": "Where?"}, "kind": "point", "expected_answer": "100, 50", "tolerance": 10}


@pytest.mark.parametrize(
    ("answer", "reward", "distance"),
    [
        ("100, 50", 1.0, 0.0),
        ("106,58", 1.0, 10.0),
        ("(107, 58)", 0.0, 10.63),
        ("nan, inf", 0.0, None),
        ("100 50", 0.0, None),
    ],
)
async def test_a_point_is_judged_by_its_distance(answer, reward, distance):
    verdict = await judge("pictures", POINT, f"<answer>{answer}</answer>")
    assert verdict.reward == reward
    assert verdict.values.get("distance") == (distance and pytest.approx(distance, abs=0.01))


@given(st.text(alphabet="0123456789., ()-einf"))
def test_any_text_can_be_a_point(text):
    distance = _distance(text, "3, 4")
    assert distance is None or distance >= 0


@needs_installed("ludus_lab.pictures")
def test_rows_follow_from_the_seed_and_hold_a_picture():
    rows = list(islice(stream(5), 8))
    assert rows == list(islice(stream(5), 8)) != list(islice(stream(6), 8))
    assert [row["kind"] for row in rows] == [*KINDS, *KINDS]
    for row in rows:
        _, image = Environment.load("pictures").task(row).input[-1]["content"]
        assert base64.b64decode(image["image_url"].partition(",")[2]).startswith(b"\x89PNG")


@needs_installed("ludus_lab.pictures")
def test_an_unknown_kind_is_named():
    with pytest.raises(UserError, match="data.kind 'charts' is not a kind of picture. Did you mean chart"):
        next(stream(0, kind="charts"))


async def test_two_hundred_answers_at_once_each_get_their_own_verdict():
    assert await oracle_rewards("pictures", sessions=400, at_once=200) == [1.0] * 400
