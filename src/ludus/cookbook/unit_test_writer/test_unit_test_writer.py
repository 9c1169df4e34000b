"""Tests of different quality get their rewards. They are skipped where bubblewrap does not work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel
from ludus.testing import needs_sandbox

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


def answer(tests: str) -> str:
    return f"```python\n{tests}\n```"


@needs_sandbox()
def test_tests_that_catch_every_mistake_earn_1_and_weak_tests_a_share():
    strong = "assert [clamp(n, 0, 10) for n in (-3, 0, 1, 5, 10, 12)] == [0, 0, 1, 5, 10, 10]"
    assert play(answer(strong)).reward == 1.0
    weak = play(answer("assert clamp(-3, 0, 10) == 0"))
    assert weak.verdict is not None
    assert (weak.reward, weak.verdict.values["caught"]) == (0.5, 2)


@needs_sandbox()
def test_tests_that_refuse_a_right_implementation_or_nothing_earn_0():
    for tests in ("assert clamp(5, 0, 10) == 6", "assert True", "import os\nos._exit(0)", "not python"):
        assert play(answer(tests)).reward == 0.0


@needs_sandbox()
def test_tests_that_count_their_runs_learn_nothing():
    counting = "import os\nruns = len(os.listdir())\nopen(f'run{runs}', 'w').close()\nassert runs < 2"
    assert play(answer(counting)).reward == 0.0


@needs_sandbox()
def test_tests_that_look_at_the_clock_learn_nothing():
    """They end just after a full period, and know a second round by its beginning: 1.0 if right ones run first."""
    clock = "import time\nphase = time.time() % 4\nassert phase > 0.9\ntime.sleep(4.05 - phase)"
    # One secret order in 70 runs the right ones first: three such orders in a row are no chance.
    assert any(play(answer(clock)).verdict.values["caught"] < 4 for _ in range(3))


def test_right_and_wrong_implementations_run_in_a_secret_order():
    resources = ludus.Environment.load(FOLDER).resources
    in_secret_order = sys.modules[resources.__module__].in_secret_order
    orders = [[is_right for _, is_right in in_secret_order(["a", "b"], ["c", "d"])] for _ in range(100)]
    assert {tuple(sorted(order)) for order in orders} == {(False, False, True, True, True, True)}
    assert {order[0] for order in orders} == {True, False}


@needs_sandbox()
def test_an_answer_without_a_block_earns_0():
    assert play("assert clamp(5, 0, 10) == 5").reward == 0.0
