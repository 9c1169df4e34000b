"""Comments earn and cost what the recipe says. The second change has mistakes in lines 2 and 11."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent
ROWS = [json.loads(line) for line in (FOLDER / "data" / "example.jsonl").read_text().splitlines()]


def play(*turns: Any) -> Rollout:
    """One rollout of the second row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), input=ROWS[1:2]).rollouts[0]


def comment(line: int, kind: str) -> dict[str, Any]:
    return {"call": "comment", "arguments": {"line": line, "kind": kind, "text": "Please change this."}}


INJECTION, DEFAULT = comment(2, "injection"), comment(11, "mutable_default")


def test_all_mistakes_found_earn_1_and_half_of_them_a_half():
    assert play(INJECTION, DEFAULT, "Done.").reward == 1.0
    assert play(INJECTION, "Done.").reward == 0.5


def test_a_false_alarm_costs_as_much_as_a_finding_earns():
    rollout = play(INJECTION, DEFAULT, comment(3, "resource_leak"), "Done.")
    assert rollout.verdict is not None
    assert rollout.reward == 0.5
    assert rollout.verdict.values["false_alarms"] == 1


def test_a_comment_on_every_line_or_none_or_of_another_kind_earns_0():
    every = {"calls": [{"name": "comment", "arguments": comment(n, "injection")["arguments"]} for n in range(1, 16)]}
    for turns in ([every, "Done."], ["I approve."], [comment(2, "off_by_one"), "Done."]):
        assert play(*turns).reward == 0.0


def test_an_unknown_kind_is_refused_with_the_list_of_kinds():
    rollout = play(comment(2, "ugly"), "Done.")
    assert "mutable_default" in rollout.response.output[1]["output"]
