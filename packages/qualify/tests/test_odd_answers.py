"""Every answer of a model ends in a verdict, however odd: only the infrastructure can fail a rollout.

`LUDUS_ODD_ANSWERS=1000` plays as many odd answers in each environment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ludus_qualify.attempts import play
from ludus_qualify.odd_answers import LONGEST, odd_answers
from ludus_qualify.oracle import Oracle
from ludus_qualify.rivals import among_rivals
from ludus_qualify.run import odd_attempts, qualify

import ludus
from ludus import Resources, Response
from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.folder import folders

COOKBOOK = Path(ludus.__file__).parent / "cookbook"
COUNT = int(os.environ.get("LUDUS_ODD_ANSWERS", "60"))

#: Environments that start a process for an answer, or run it for seconds, get a share of the odd answers.
SLOW = {
    "browser": 6,
    "chess": 3,
    "code_gen": 2,
    "code_tests": 6,
    "equivalence_llm_judge": 2,
    "form_filling": 3,
    "genrm_compare": 6,
    "gymnasium": 2,
    "instruction_following": 2,
    "math_with_code": 3,
    "math_with_judge": 2,
    "mini_swe_agent": 6,
    "negotiation": 2,
    "proofs": 6,
    "swerl_gen": 6,
    "terminal": 6,
    "text_to_sql": 3,
    "unit_test_writer": 6,
    "verilog": 3,
}
NAMES = [*sorted(folders()), *sorted(path.parent.name for path in COOKBOOK.glob("*/environment.yaml"))]


@pytest.mark.parametrize("name", NAMES)
async def test_every_odd_answer_ends_in_a_verdict(name: str) -> None:
    try:
        environment = Environment.load(COOKBOOK / name if (COOKBOOK / name).is_dir() else name).copy()
        oracle = Oracle.of(environment)
        environment.configure(oracle.settings)
        rows = Rows(environment.rows(None), environment.task, 5, 0, environment.with_prompt)
        attempts = odd_attempts(rows, oracle, max(COUNT // SLOW.get(name, 1), 1), seed=0)
        played = await play(among_rivals(environment, oracle), attempts, concurrency=16, seed=0)
    except UserError as error:  # a missing extra, sandbox or server
        pytest.skip(str(error))
    failures = {attempt.name: str(played[attempt.id].error) for attempt in attempts if played[attempt.id].error}
    assert failures == {}


def test_odd_answers_follow_from_their_seed_and_one_of_them_is_ten_megabytes_long() -> None:
    texts = [[repr(odd.script) for odd in odd_answers(50, seed=seed) if not callable(odd.script)] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert [len(text) >= LONGEST for text in texts[0]].count(True) == 1
    assert list(odd_answers(0)) == []


class Numbers(Resources):
    """A verifier as people write it: `int()` of the last line that the model wrote."""

    class Task(ludus.Task):
        expected_answer: str

    async def verify(self, task: Any, response: Response) -> float:
        text = response.output_text.strip()
        return float(text.isdecimal() and int(text) == int(task.expected_answer))


def test_a_card_says_how_many_odd_answers_ended_without_a_verdict() -> None:
    rows = [{"responses_create_params": {"input": f"{n} + 1?"}, "expected_answer": str(n + 1)} for n in range(5)]
    card = qualify(Numbers, input=rows, odd=200)
    assert card.odd.total == 200
    assert card.odd.wrong > 0
    (check,) = [check for check in card.checks if check.name == "odd answers judged"]
    assert check.status == "failed"
    assert "4300 digits" in check.reason
    assert "odd answers judged" in card.failed
    assert card.to_row()["odd_failure_rate"] == card.odd.wrong / 200
