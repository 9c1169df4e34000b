"""A fixture shows with recorded cases that a verifier does what its author says."""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from nemo_gym.verifier_fixture import (
    VerifierFixture,
    VerifierFixtureError,
    VerifierFixtureResult,
    exercise_verifier_fixture,
)
from pydantic import BaseModel


class Answer(BaseModel):
    answer: str


class Verifier:
    """Rewards the answer "4", and draws a reward for "random"."""

    def __init__(self) -> None:
        self.seed = 0.75

    async def verify(self, body: Answer) -> dict[str, float]:
        if body.answer == "crash":
            raise RuntimeError("the judge is away")
        rewards = {"4": 1.0, "random": self.seed, "much": 2.0, "nan": float("nan")}
        return {"reward": rewards.get(body.answer, 0.0)}


FULL = {"name": "right", "kind": "full_reward", "request": {"answer": "4"}, "expected_reward": 1.0}
ZERO = {"name": "wrong", "kind": "zero_reward", "request": {"answer": "5"}, "expected_reward": 0.0}
MALFORMED = {"name": "empty", "kind": "malformed", "request": {}, "expected_error": "Field required"}
SEEDED = {"name": "drawn", "kind": "determinism", "request": {"answer": "random"}, "expected_reward": 0.5}


def reseed(server: Any, request: Any) -> None:
    server.seed = 0.5


def exercised(folder: Path, cases: list[dict[str, Any]], determinism: Any = "unknown", **options: Any) -> Any:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    fields = {key: options.pop(key) for key in ("invoke", "reseed") if key in options}
    fixture = VerifierFixture(Verifier, Answer, path, **fields)
    options = {"reward_range": (0.0, 1.0), **options}
    return asyncio.run(exercise_verifier_fixture(fixture, determinism=determinism, **options))


def test_a_verifier_that_does_what_its_cases_say_passes(tmp_path: Path):
    seeded = Enum("seeded", {"SEEDED": "seeded"}).SEEDED
    assert exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], seeded, reseed=reseed) == (
        VerifierFixtureResult("right", "full_reward", (1.0,)),
        VerifierFixtureResult("wrong", "zero_reward", (0.0,)),
        VerifierFixtureResult("empty", "malformed", ()),
        VerifierFixtureResult("drawn", "determinism", (0.5, 0.5)),
    )
    skipped = exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], "stochastic")
    assert [result.name for result in skipped] == ["right", "wrong", "empty"]


def test_a_verifier_may_be_called_by_a_function_and_may_reward_low_values(tmp_path: Path):
    cases = [{**FULL, "expected_reward": 0}, {**ZERO, "expected_reward": 1}, MALFORMED]
    results = exercised(tmp_path, cases, higher_is_better=False, invoke=lambda _, request: float(request.answer != "4"))
    assert [result.observed_rewards for result in results] == [(0.0,), (1.0,), ()]


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        ([FULL, ZERO], "no case of kind malformed"),
        ([FULL, FULL, ZERO, MALFORMED], "two cases are called right"),
        ([{**FULL, "more": 1}, ZERO, MALFORMED], "cases.jsonl:1: more"),
        ([{**FULL, "expected_error": "x"}, ZERO, MALFORMED], "needs expected_reward and no expected_error"),
        ([FULL, ZERO, {**MALFORMED, "expected_reward": 1}], "needs expected_error and no expected_reward"),
        ([{**FULL, "request": {"answer": "5"}, "expected_reward": 0}, ZERO, MALFORMED], "right: reward 0.0, but"),
        ([FULL, {**ZERO, "request": {"answer": "random"}, "expected_reward": 0.75}, MALFORMED], "wrong: reward 0.75"),
        ([{**FULL, "expected_reward": 0.5}, ZERO, MALFORMED], "reward 1.0, expected 0.5"),
        ([{**FULL, "request": {"answer": "much"}}, ZERO, MALFORMED], "not between 0.0 and 1.0"),
        ([{**FULL, "request": {"answer": "nan"}}, ZERO, MALFORMED], "not a finite number"),
        ([{**FULL, "request": {"answer": "crash"}}, ZERO, MALFORMED], "RuntimeError: the judge is away"),
        ([FULL, ZERO, {**MALFORMED, "request": {"answer": "4"}}], "verified without an error"),
        ([FULL, ZERO, {**MALFORMED, "expected_error": "other words"}], "lacks 'other words'"),
    ],
)
def test_each_problem_of_a_fixture_is_an_error(tmp_path: Path, cases: list[dict[str, Any]], problem: str):
    with pytest.raises(VerifierFixtureError, match=problem):
        exercised(tmp_path, cases)


def test_a_seeded_verifier_needs_its_cases_and_repeats_its_rewards(tmp_path: Path):
    with pytest.raises(VerifierFixtureError, match="no case of kind determinism"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED], "seeded")
    with pytest.raises(VerifierFixtureError, match="no reseed"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], "seeded")
    seeds = iter([0.5, 0.25])

    async def drift(server: Any, request: Any) -> None:
        server.seed = next(seeds)

    with pytest.raises(VerifierFixtureError, match="0.5 and 0.25"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], "seeded", reseed=drift, update_expected=True)
    with pytest.raises(VerifierFixtureError, match="'often'"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED], "often")


def test_expected_rewards_are_rewritten_on_demand(tmp_path: Path):
    cases = [FULL, ZERO, MALFORMED, {**SEEDED, "expected_reward": 0.1}]
    exercised(tmp_path, cases, "seeded", reseed=reseed, update_expected=True)
    lines = (tmp_path / "cases.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [FULL, ZERO, MALFORMED, SEEDED]
    assert [path.name for path in tmp_path.iterdir()] == ["cases.jsonl"]
