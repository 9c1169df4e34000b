"""The figures of a run are the same wherever they are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ludus_bench.profile.profile import Profile

import ludus
from ludus import Resources, Response, ScriptedModel
from ludus.compare.scores import Scores
from ludus.view.live_run import LiveRun
from ludus.view.places import ViewedRun


class Number(Resources):
    """The reward is the number that the model says."""

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return float(response.output_text)


def figures(folder: Path) -> list[dict[str, Any]]:
    """The mean, the interval and the range of rewards, as each of four commands shows them."""
    run = LiveRun(ViewedRun(folder))
    while run.index.grow():
        pass
    stored = json.loads((folder / "metrics.json").read_bytes())
    profile = Profile([folder]).summary()["overall"]
    shown = [stored["reward"], run.headline({})["reward"], profile["reward"], Scores.read(folder).reward]
    return [{name: reward[name] for name in ("mean", "ci95", "range")} for reward in shown]


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0), (0.0, 10.0), (-2.0, 0.5)])
def test_the_interval_lies_in_the_declared_range_of_rewards_wherever_it_is_shown(tmp_path: Path, bounds: Any):
    environment = replace(ludus.Environment.load(Number), reward_range=bounds)
    rewards = iter(["1", "0.5", "1", "1", "0", "1", "1", "1"])
    model = ScriptedModel(lambda request: next(rewards))
    rows = [{"responses_create_params": {"input": f"{number}"}} for number in range(4)]
    ludus.collect(environment, model=model, input=rows, repeats=2, output=tmp_path / "run")
    first, *others = figures(tmp_path / "run")
    assert first["range"] == {None: [0.0, 1.0], (-2.0, 0.5): None}.get(bounds, list(bounds or ()))
    for other in others:
        assert other == {name: pytest.approx(value) for name, value in first.items()}
