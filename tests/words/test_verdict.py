"""Verdicts: which numbers are rewards, which values have a mean, and which names are reserved."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

import ludus
from ludus import Failure, Resources, Rollout, ScriptedModel, Verdict

GOOD = ScriptedModel(["done"], name="m")


def giving(verdict: Any) -> type[Resources]:
    class Giving(Resources):
        async def verify(self, task: ludus.Task, response: ludus.Response) -> Any:
            return verdict()

    return Giving


def giving_groups(verdict: Any) -> type[Resources]:
    class Giving(Resources):
        async def verify_group(self, task: ludus.Task, responses: list[ludus.Response]) -> Any:
            return [verdict() for _ in responses]

    return Giving


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.array(0.5)])
def test_a_numpy_number_is_a_reward(number):
    assert Verdict(number).reward == 0.5
    assert type(Verdict(number, components={"a": number}, turn_rewards=[number]).turn_rewards[0]) is float


@pytest.mark.parametrize("number", [np.int64(1), np.bool_(True), True, 1])
def test_integers_and_booleans_become_float_rewards(number):
    assert repr(Verdict(number).reward) == "1.0"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(10**400, id="huge"),
        pytest.param(-(10**5000), id="vast"),
        np.float32("nan"),
        np.float64("inf"),
        np.array([1.0, 2.0]),
        np.str_("1"),
        1j,
    ],
)
def test_a_reward_that_is_not_a_finite_number_is_refused(bad):
    with pytest.raises(Failure, match="a reward must be a finite number") as raised:
        Verdict(bad)
    assert raised.value.kind == "bad_verdict"


@pytest.mark.parametrize("make", [giving, giving_groups])
def test_a_bad_reward_fails_its_rollouts_and_not_the_run(make, rows):
    result = ludus.collect(make(lambda: 10**400), model=GOOD, input=rows(2), repeats=2)
    assert result.metrics["failures"] == {"verify/bad_verdict": 4}


@pytest.mark.parametrize("name", ["outcome", "attempt", "usage", "repeat", "response", "task_id", "model_calls"])
def test_a_verdict_value_named_like_a_record_field_is_refused(name, rows):
    result = ludus.collect(giving(lambda: Verdict(1.0, fine=1, **{name: 7})), model=GOOD, input=rows(1))
    error = result.rollouts[0].error
    assert (error.stage, error.kind) == ("verify", "bad_verdict")
    assert f"a value of the verdict is named {name}, like a field of the record" in error.cause


def test_a_stored_row_with_a_verdict_value_named_like_a_record_field_is_still_read(rows, tmp_path):
    environment = giving(lambda: Verdict(1.0, fine=1))
    ludus.collect(environment, model=GOOD, input=rows(1), output=tmp_path)
    path = tmp_path / "rollouts.jsonl"
    row = orjson.loads(path.read_bytes())
    row["verdict_fields"] = ["fine", "outcome", "usage"]
    assert Rollout.from_row(row).reward == 1.0
    path.write_bytes(orjson.dumps(row) + b"\n")
    result = ludus.collect(environment, model=GOOD, input=rows(1), output=tmp_path, repeats=2, resume=True)
    assert result.metrics["counts"]["completed"] == 2


VALUES = {
    "nan": float("nan"),
    "infinite": float("inf"),
    "int64": np.int64(3),
    "float32": np.float32(0.1),
    "truth": np.bool_(True),
    "array": np.array([1, 2]),
    "plain": 2,
    "text": "x",
    "nothing": None,
}


def test_a_resumed_run_reports_the_same_means_of_verdict_values(rows, tmp_path):
    environment = giving(lambda: Verdict(1.0, **VALUES))
    first = ludus.collect(environment, model=GOOD, input=rows(2), output=tmp_path)
    again = ludus.collect(environment, model=GOOD, input=rows(2), output=tmp_path, resume=True)
    assert first.metrics["values"] == {"int64": 3.0, "float32": 0.1, "truth": 1.0, "plain": 2.0}
    assert again.metrics["values"] == first.metrics["values"]


def test_a_verdict_value_too_large_for_a_float_has_no_mean(rows):
    result = ludus.collect(giving(lambda: Verdict(1.0, v=10**400, w=1)), model=GOOD, input=rows(1))
    assert result.metrics["values"] == {"w": 1.0}
