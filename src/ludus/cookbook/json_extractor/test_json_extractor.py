"""Right, wrong and invented fields earn what the recipe says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


RIGHT = {
    "invoice_number": "RE-2291",
    "total": 1250.0,
    "due_date": "2026-03-14",
    "reverse_charge": None,
    "contact": "billing@nordlicht.example",
}


def test_the_right_object_earns_1_alone_or_in_a_block():
    assert play(json.dumps(RIGHT)).reward == 1.0
    assert play(f"Here:\n```json\n{json.dumps(RIGHT)}\n```").reward == 1.0


def test_a_field_that_is_missing_earns_nothing_and_costs_nothing():
    assert play(json.dumps({**RIGHT, "contact": None})).reward == 0.75


def test_a_wrong_field_and_an_invented_field_cost_as_much_as_a_right_one_earns():
    assert play(json.dumps({**RIGHT, "total": 1.0})).reward == 0.5
    assert play(json.dumps({**RIGHT, "reverse_charge": False})).reward == 0.75
    assert play(json.dumps({**RIGHT, "currency": "EUR"})).reward == 0.75


def test_only_nulls_only_guesses_and_no_json_earn_0():
    for text in (
        json.dumps(dict.fromkeys(RIGHT)),
        json.dumps(dict.fromkeys(RIGHT, "?")),
        "[]",
        "RE-2291",
        '{"total": NaN}',
    ):
        assert play(text).reward == 0.0
