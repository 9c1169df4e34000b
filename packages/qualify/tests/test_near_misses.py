"""Near misses: one changed tool call finds a verifier that pays for too much, without wrong answers from a hook."""

from __future__ import annotations

import io
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from ludus_qualify.card import Card
from ludus_qualify.command import show_card
from ludus_qualify.near_misses import near_misses
from ludus_qualify.run import qualify
from ludus_qualify.session_state import attributes_of
from rich.console import Console

from ludus.resources import Resources

COUNTER = """
import itertools

import ludus
from ludus import Resources, tool

_numbers = itertools.count()


class Counter(Resources):
    class Task(ludus.Task):
        initial: int
        expected: int

    async def open(self, task):
        self.count, self.looks, self.session_number = task.initial, [], next(_numbers)

    @tool
    async def add(self, count: int) -> str:
        \"\"\"Add to the counter.\"\"\"
        self.count += count
        return "ok"

    @tool
    async def look(self, unit: str) -> int:
        \"\"\"Read the counter.\"\"\"
        LOOKED
        return self.count

    async def verify(self, task, response):
        return float(VERDICT)
"""
ORACLE = """
expected_exploits = {"tool_spam": (1.0, "a few calls of 1 reach a small number")}

def oracle(task):
    add = {"call": "add", "arguments": {"count": task.expected - task.initial}}
    return [{"call": "look", "arguments": {"unit": "ones"}}, add, "Done."]
"""


def counter(
    folder: Path, verdict: str, qualify_py: str = ORACLE, looked: str = "pass"
) -> tuple[Path, list[dict[str, Any]]]:
    (folder / "environment.yaml").write_text("name: counter\nresources: resources.py:Counter\n")
    (folder / "resources.py").write_text(COUNTER.replace("VERDICT", verdict).replace("LOOKED", looked))
    (folder / "qualify.py").write_text(qualify_py)
    rows = [(1, 40), (2, 7), (3, 35), (10, 60), (-5, 90)]
    asked = {"input": "Bring the counter to the number."}
    return folder, [{"responses_create_params": asked, "initial": low, "expected": high} for low, high in rows]


def card_of(folder: Path, verdict: str, **other: str) -> Card:
    path, rows = counter(folder, verdict, **other)
    return qualify(path, input=rows, odd=0)


def shown(card: Card) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_card(console, card)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_a_verifier_that_accepts_more_than_the_task_asks_for_is_found_without_a_hook(tmp_path: Path):
    card = card_of(tmp_path, "self.count >= task.expected")
    (check,) = [check for check in card.checks if check.status == "look"]
    assert check.name == "near misses"
    assert "earned 1 and changed self.count" in check.reason
    assert (card.verdict, card.passed) == ("not shown", True)
    assert card.near_misses.wrong >= 5
    assert card.to_row()["findings"] == [check.claim]
    assert f"counter may be unsound. Look at this: {check.claim}." in shown(card)


def test_a_verifier_that_asks_for_the_exact_value_is_trusted(tmp_path: Path):
    card = card_of(tmp_path, "self.count == task.expected")
    assert card.verdict == "trusted"
    assert card.near_misses.total >= 15
    assert card.near_misses.wrong == 0
    assert f"near misses 0.000 (0 of {card.near_misses.total} earned the full reward)" in shown(card)


def test_a_change_that_leaves_the_same_state_does_not_count(tmp_path: Path):
    looks_only = ORACLE.replace('"Done."]', '{"call": "look", "arguments": {"unit": "tens"}}, "Done."]')
    assert card_of(tmp_path, "self.count == task.expected", qualify_py=looks_only).verdict == "trusted"


def test_an_attribute_that_a_right_variant_changes_is_not_compared(tmp_path: Path):
    logged = {"looked": "self.looks.append(unit)"}
    (tmp_path / "plain").mkdir()
    card = card_of(tmp_path / "plain", "self.count == task.expected", **logged)
    assert "changed self.looks" in card.near_misses.examples[0]
    variant = "\ndef preserving(task):\n    return {'without_a_look': oracle(task)[1:]}\n"
    (tmp_path / "declared").mkdir()
    card = card_of(tmp_path / "declared", "self.count == task.expected", qualify_py=ORACLE + variant, **logged)
    assert (card.verdict, card.near_misses.wrong) == ("trusted", 0)


def test_an_environment_can_say_that_near_misses_are_no_hole(tmp_path: Path):
    why = '"near_miss": (1.0, "more is better"), '
    allowed = ORACLE.replace("expected_exploits = {", "expected_exploits = {" + why)
    card = card_of(tmp_path, "self.count >= task.expected", qualify_py=allowed)
    assert card.verdict == "trusted"
    assert [check.reason for check in card.checks if check.name == "near misses"] == ["more is better"]


def test_each_change_is_made_to_one_call_and_one_argument():
    call = {"name": "book", "arguments": {"room": "blue", "nights": 2, "late": True, "guests": ["Ann"]}}
    misses = near_misses([{"calls": [call]}, "Done."], random.Random(0), most=100)
    calls = [next((turn["calls"] for turn in miss.script if isinstance(turn, dict)), []) for miss in misses]  # type: ignore[union-attr]
    assert calls[:2] == [[], [call, call]]
    changed = [arguments["arguments"] for (arguments,) in calls[2:]]
    assert {"room": "blue", "nights": 3, "late": True, "guests": ["Ann"]} in changed
    assert {"room": "blue", "nights": 1, "late": True, "guests": ["Ann"]} in changed
    assert {"room": "blue", "nights": 2, "late": False, "guests": ["Ann"]} in changed
    assert {"room": "Ann", "nights": 2, "late": True, "guests": ["Ann"]} in changed
    assert {"room": "bluy", "nights": 2, "late": True, "guests": ["Ann"]} in changed
    assert {"room": "blue", "nights": 2, "late": True, "guests": ["Any"]} in changed
    assert all(sum(arguments[key] != call["arguments"][key] for key in arguments) == 1 for arguments in changed)  # type: ignore[index]
    assert len({json.dumps(miss.script) for miss in misses}) == len(misses)


@pytest.mark.parametrize("script", ["The answer is 7.", ["one", "two"], lambda request: "x"])
def test_a_script_without_tool_calls_has_no_near_misses(script: Any):
    assert near_misses(script, random.Random(0)) == []


def test_the_state_of_a_session_is_compared_by_value_and_leaves_out_what_has_none():
    class Box:
        __slots__ = ("items", "lock")

        def __init__(self, *items: str) -> None:
            self.items, self.lock = set(items), threading.Lock()

    class Session(Resources):
        pass

    states = []
    for items in (["a", "b"], ["b", "a"], ["a"]):
        session = Session()
        session.box, session.table = Box(*items), {"k": [1, {"x": 2.0}]}  # type: ignore[attr-defined]
        states.append(attributes_of(session))
    assert states[0] == states[1]
    assert set(states[0]) == {"box.items", "table"}
    assert [name for name in states[0] if states[0][name] != states[2][name]] == ["box.items"]


def test_a_bad_policy_over_its_limit_is_marked_in_the_table_without_colours(tmp_path: Path):
    card = card_of(tmp_path, "self.count >= task.expected", qualify_py=ORACLE.replace("(1.0,", "(0.1,"))
    over = [exploit.best for exploit in card.exploits if exploit.excess]
    assert over == ["tool_spam/many"]
    text = shown(card)
    assert "0.100 over its limit" in text
    assert text.count("over its limit") == len(over)


def test_exceptions_in_right_answers_are_listed_and_those_of_bad_policies_are_one_line(tmp_path: Path):
    raising = 'if unit == "x": raise KeyError(unit)\n        if self.count == 7: raise ValueError("seven")'
    variant = "\ndef preserving(task):\n    return {'looks_after': [*oracle(task)[1:2], *oracle(task)[:1], 'Done.']}\n"
    card = card_of(tmp_path, "self.count == task.expected", qualify_py=ORACLE + variant, looked=raising)
    text = shown(card)
    assert "tools raised exceptions in right answers: once look: ValueError at resources.py" in text
    count = sum(error["count"] - error["in_right"] for error in card.tool_errors)
    assert f"wrong answers and bad policies made tools raise {count} exceptions: " in text
    assert text.count("KeyError") == 1
