"""Only the right number in the last line counts, and the generated texts hold what they promise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


def test_the_right_number_earns_1_and_another_persons_number_0():
    first = json.loads((FOLDER / "data" / "example.jsonl").read_text().splitlines()[0])
    others = set(re.findall(r"locker (\d+)", str(first))) - {first["expected_answer"]}
    assert play(f"It is in the middle.\n\n**Answer:** {first['expected_answer']}").reward == 1.0
    assert len(others) == 11
    assert play(f"Answer: {others.pop()}").reward == 0.0


def test_all_numbers_at_once_earn_0():
    assert play("Answer: 1000, 1001, 1002").reward == 0.0
    assert play("").reward == 0.0


def test_generated_texts_have_the_length_that_the_setting_says():
    for words in (300, 3000):
        result = ludus.collect(
            FOLDER, model=ScriptedModel(["?"]), dataset="long", limit=2, settings={"data.words": words}
        )
        for rollout in result.rollouts:
            text = rollout.task.input[0]["content"]
            assert 0.8 * words < len(text.split()) < 1.3 * words
            assert text.count(f"locker {rollout.task.expected_answer}") == 1
