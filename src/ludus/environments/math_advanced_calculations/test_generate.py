"""The stream of rows: deterministic, always solvable, and each row holds the calls that solve it."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

import ludus
from ludus import Environment, Request, ScriptedModel, UserError
from ludus.environments.math_advanced_calculations.generate import LARGEST, stream
from ludus.environments.math_advanced_calculations.operations import compute
from ludus.environments.math_advanced_calculations.resources import AlteredArithmetic
from ludus.response import texts_of

NAME = "math_advanced_calculations"


def drawn(count: int, seed: int = 1, **settings: Any) -> list[dict[str, Any]]:
    return list(islice(stream(seed, **settings), count))


def question(row: dict[str, Any]) -> str:
    return texts_of(row["responses_create_params"]["input"][0])


def test_the_example_rows_are_the_beginning_of_the_stream() -> None:
    lines = Environment.load(NAME).dataset().read_text().splitlines()
    assert [json.loads(line) for line in lines] == drawn(len(lines), seed=0)
    assert len(lines) >= 5


def test_the_same_seed_gives_the_same_rows_and_another_seed_gives_other_rows() -> None:
    first = drawn(40)
    assert drawn(20) == first[:20]
    assert not {question(row) for row in drawn(40, seed=2)} & {question(row) for row in first}


@pytest.mark.parametrize(("depth", "breadth"), [(1, 1), (2, 3), (4, 4), (6, 6)])
def test_the_calls_in_a_row_lead_to_all_of_its_results(depth: int, breadth: int) -> None:
    for row in drawn(40, depth=depth, breadth=breadth):
        task = AlteredArithmetic.Task.model_validate(row)
        calls = row["solution"]
        returned = [compute(call["name"], *call["arguments"].values()) for call in calls]
        assert {*task.results} <= {*returned}
        assert len(calls) <= task.max_calls // 2
        assert all(abs(value) <= LARGEST for value in returned)
        assert min(2, depth) <= row["depth"] <= depth
        assert len(task.results) == row["breadth"] <= breadth


def test_each_argument_of_a_call_stands_in_the_question_or_was_returned_before() -> None:
    for row in drawn(40):
        known = {float(number) for number in range(1, 13) if str(number) in question(row)}
        for call in row["solution"]:
            assert known.issuperset(call["arguments"].values())
            known.add(compute(call["name"], *call["arguments"].values()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"depth": 0}, "data.depth=0 must be a whole number from 1 to 6"),
        ({"depth": 7}, "data.depth=7"),
        ({"breadth": "wide"}, "data.breadth='wide'"),
        ({"breadth": True}, "data.breadth=True"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_the_setting_and_its_value(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        stream(1, **settings)


def test_a_collection_draws_rows_from_the_stream_and_their_solutions_earn_the_reward() -> None:
    solutions = {question(row): row["solution"] for row in drawn(12, seed=5, depth=3)}

    def oracle(request: Request) -> Any:
        steps = solutions[texts_of(request.input[0])]
        return {"calls": [steps[request.turn]]} if request.turn < len(steps) else "Done."

    result = ludus.collect(
        NAME, model=ScriptedModel(oracle), dataset="stream", limit=12, seed=5, settings={"data.depth": 3}
    )
    assert [rollout.reward for rollout in result.rollouts] == [1.0] * 12
