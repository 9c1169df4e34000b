"""Formulas earn the reward, and numbers do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


def write(cell: str, content: str) -> dict[str, Any]:
    return {"call": "write_cell", "arguments": {"cell": cell, "content": content}}


def test_a_formula_earns_1_and_the_model_sees_its_value():
    rollout = play(write("B4", "=SUM(B1:B3)"), "Done.")
    assert rollout.response.output[1]["output"] == "295.0"
    assert rollout.reward == 1.0
    assert play(write("B4", "=B1+B2+B3"), "Done.").reward == 1.0


def test_the_right_number_and_a_formula_without_inputs_earn_0():
    for content in ("295", "=295", "=200+95", "=SUM(B1:B2)+95"):
        assert play(write("B4", content), "Done.").reward == 0.0


def test_changing_an_input_earns_0():
    assert play(write("B4", "=SUM(B1:B3)"), write("B1", "=120"), "Done.").reward == 0.0


def test_what_is_no_formula_is_refused_and_leaves_the_sheet_as_it_was():
    for content in ("=__import__('os')", "=B4+1", "=1/0", "text", "=9" + "*9" * 200):
        rollout = play(write("B4", content), write("B4", "=SUM(B1:B3)"), "Done.")
        assert "FormulaError" in rollout.response.output[1]["output"] or "error" in rollout.response.output[1]["output"]
        assert rollout.reward == 1.0
