"""Each of the three can be elsewhere, and a collection cannot tell."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from serving import COUNTER, COUNTER_ROW, served, url_of

import ludus
from ludus.collection.api import Collection

ROWS = [{**COUNTER_ROW, "initial_count": start, "expected_count": start + 3 + start % 2} for start in range(6)]
MODEL = "scripted:serving:count_to_three"


def collected(**options: Any) -> list[dict[str, Any]]:
    result: Collection = ludus.collect(COUNTER, input=ROWS, repeats=2, **options)
    rows = [rollout.to_row() for rollout in result.rollouts]
    for row in rows:
        assert row.pop("timings")["total"] > 0
        row["response"]["output"] = orjson.loads(orjson.dumps(row["response"]["output"]))
        row["response"] = {key: row["response"][key] for key in ("output", "status", "usage")}
    return sorted(rows, key=lambda row: row["rollout_id"])


@pytest.fixture(scope="module")
def here() -> list[dict[str, Any]]:
    found = collected(model=MODEL)
    assert {row["reward"] for row in found} == {0.0, 1.0}
    return found


def test_remote_resources_give_the_same_rollouts(here: list[dict[str, Any]]):
    with served(COUNTER, resources_only=True) as serving:
        assert collected(model=MODEL, resources=url_of(serving, COUNTER)) == here


def test_a_remote_agent_gives_the_same_rollouts(here: list[dict[str, Any]]):
    with served(COUNTER) as serving:
        assert collected(agent=url_of(serving, f"{COUNTER}_simple_agent")) == here


def test_a_remote_model_gives_the_same_rollouts(here: list[dict[str, Any]]):
    with served(COUNTER) as serving:
        assert collected(model=f"remote:{url_of(serving, 'policy_model')}") == here


def test_all_three_remote_and_apart_give_the_same_rollouts(here: list[dict[str, Any]]):
    with served(COUNTER, resources_only=True) as resources, served(COUNTER) as model:
        spec = f"remote:{url_of(model, 'policy_model')}"
        with served(COUNTER, model=spec, resources=url_of(resources, COUNTER)) as agent:
            assert collected(agent=url_of(agent, f"{COUNTER}_simple_agent")) == here
