"""Mistakes are planted at known turns of a walk that shows no sign of them. Credit finds them."""

from __future__ import annotations

import pytest
from branches import lines
from corridor import DOORS, Corridor, careful, planted, recorded_walks
from ludus_credit.crediting import credit

from ludus import ScriptedModel

WALKS = 30


@pytest.mark.slow
def test_the_lowest_credit_is_on_the_planted_turn_in_nine_of_ten_walks(tmp_path):
    run = recorded_walks(tmp_path / "run", WALKS)
    assert {row["reward"] for row in lines(run / "rollouts.jsonl")} == {0.0}
    summary = credit(run, Corridor, model=ScriptedModel(careful), branches=4)
    assert summary["rollouts"]["credited"] == WALKS
    found = waited = 0
    for row in lines(run / "credit" / "rollouts.jsonl"):
        number = int(row["responses_create_params"]["input"].split()[1])
        mistake, wait = planted(number)
        credits = row["turn_rewards"]
        assert len(credits) == len(row["model_calls"]) == DOORS + 2
        lowest = min(credits)
        found += credits[mistake] == lowest and credits.count(lowest) == 1
        waited += credits[wait] == lowest
        low, high = row["turn_credit"]["intervals"][mistake]
        assert low <= credits[mistake] <= high
    assert found >= 0.9 * WALKS
    assert waited <= 0.1 * WALKS
