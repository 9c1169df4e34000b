"""Every environment that runs what a model writes has the bad policy `cheat`, and no cheat earns anything.

All of `ludus qualify` takes minutes for these environments. Here are the oracle and the attacks on the grader, at one
row. The tests of code_gen, code_tests and math_with_code play every cheat at tasks whose answer only a leak can tell.
"""

from __future__ import annotations

import json

import pytest
from oracles import ready

from ludus.environment import Environment
from ludus.qualify import cheats
from ludus.qualify.attempts import Attempt, play
from ludus.qualify.oracle import Oracle
from ludus.qualify.run import attempts_for
from ludus.runtime.processes import shared_pool
from ludus.testing import needs_sandbox

PROGRAMS = ("code_gen", "code_tests", "math_with_code", "mini_swe_agent", "swerl_gen", "terminal")

#: Cheats that only wait for their time limit. The tests of the graders have them with a shorter limit.
ENDLESS = {"hangs", "catches_the_alarm"}

#: What is played here. tests/graders/test_repository_grading.py has more attacks on the grader of mini_swe_agent and
#: swerl_gen: here some cheats show that they arrive.
PLAYED = {
    "mini_swe_agent": {"prints_success", "exits_when_called", "overwrites_files", "writes_the_verdict", "skips"},
    "swerl_gen": {"exits_early", "patches_framework", "replaces_equality"},
    "terminal": set(cheats.NAMES) - ENDLESS,
    "text_to_sql": None,
}


def attempts_at_first_row(environment: Environment, oracle: Oracle) -> list[Attempt]:
    with environment.dataset().open(encoding="utf-8") as lines:
        row = json.loads(next(lines))
    return attempts_for("row", row, environment.task(row), oracle, seed=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_environment_that_runs_programs_has_every_cheat_as_a_policy(name: str):
    names = {attempt.name for attempt in attempts_at_first_row(*ready(name))}
    assert names >= {f"cheat/{cheat}" for cheat in cheats.NAMES}


@needs_sandbox()
@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
async def test_no_cheat_earns_anything_and_the_right_answer_does(name: str):
    environment, oracle = ready(name)
    wanted = PLAYED[name]
    chosen = [
        attempt
        for attempt in attempts_at_first_row(environment, oracle)
        if attempt.kind == "oracle"
        or (attempt.name.startswith("cheat/") and (wanted is None or attempt.name.removeprefix("cheat/") in wanted))
    ]
    async with shared_pool():
        played = await play(environment, chosen, concurrency=4, seed=0)
    assert len(chosen) > 3
    for attempt in chosen:
        rollout = played[attempt.id]
        assert rollout.error is None, (attempt.name, rollout.error)
        assert rollout.reward == float(attempt.kind == "oracle"), attempt.name


def test_a_module_with_a_cheat_at_its_end_calls_it_for_every_function_and_method():
    methods = "    def __init__(self):\n        self.x = 1\n    def g(self):\n        return 2\n"
    module = f"def f():\n    return 1\n\nclass A:\n{methods}"
    names: dict[str, object] = {}
    exec(cheats.taking_over(module, "def cheat(*arguments):\n    return 'taken'"), names)
    assert eval("(f(), A().g(), A().x)", names) == ("taken", "taken", 1)
