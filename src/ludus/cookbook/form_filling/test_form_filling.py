"""Forms are filled in over MCP, and judged when they are submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


RIGHT = {"name": "Selma Aalto", "email": "selma@aalto.example", "arrival": "2026-05-03", "nights": "4", "guests": "2"}
SUBMIT = {"call": "submit"}


def filled(**fields: str) -> dict[str, Any]:
    values = [{"field": field, "value": value} for field, value in fields.items()]
    return {"calls": [{"name": "fill_in", "arguments": value} for value in values]}


def test_the_right_form_earns_1_once_it_is_submitted():
    assert play(filled(**RIGHT), SUBMIT, "Done.").reward == 1.0
    assert play(filled(**RIGHT), "Done.").reward == 0.0


def test_an_invented_field_earns_0():
    assert play(filled(**RIGHT, requests="a sea view"), SUBMIT, "Done.").reward == 0.0


def test_the_model_reads_why_the_server_refuses_a_value():
    rollout = play(filled(arrival="3 May"), filled(colour="red"), SUBMIT, filled(**RIGHT), "Done.")
    texts = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
    assert "arrival cannot be '3 May'" in texts[0]
    assert "colour cannot be 'red'" in texts[1]
    assert "submitted already" in texts[3]
    assert rollout.reward == 0.0


def test_every_rollout_has_a_form_of_its_own():
    model = ScriptedModel([filled(**RIGHT), SUBMIT, "Done."])
    result = ludus.collect(FOLDER, model=model, limit=1, repeats=3)
    assert [rollout.reward for rollout in result.rollouts] == [1.0, 1.0, 1.0]
