"""Contracts earn the share of the discount. A script plays the seller of the bicycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


ASK = "Would it help if I collect it today?"


def sign(price: int, condition: str) -> dict[str, Any]:
    return {"call": "sign_contract", "arguments": {"price": price, "condition": condition}}


def test_the_seller_tells_the_price_to_a_buyer_who_asks_about_the_condition():
    rollout = play(ASK, sign(80, "collect today"), "Goodbye.")
    assert "I would go down to 80 euros" in str(rollout.response.output)
    assert rollout.reward == 1.0


def test_half_of_the_discount_earns_a_half_and_the_asking_price_nothing():
    assert play(ASK, sign(100, "collect today"), "Goodbye.").reward == 0.5
    assert play(sign(120, ""), "Goodbye.").reward == 0.0
    assert play(sign(500, ""), "Goodbye.").reward == 0.0


def test_a_price_of_hundreds_of_digits_earns_0():
    call = {"call": "sign_contract", "arguments": f'{{"price": {10**400}, "condition": ""}}'}
    assert play(call, "Goodbye.").reward == 0.0


def test_a_price_that_the_seller_refuses_ends_the_negotiation():
    rollout = play(sign(79, "collect today"), sign(80, "collect today"), "Goodbye.")
    assert "does not sign" in str(rollout.response.output)
    assert "already" in str(rollout.response.output)
    assert rollout.reward == 0.0


def test_no_contract_earns_0():
    assert play(ASK, "We have a deal at 80 euros. Goodbye.").reward == 0.0
