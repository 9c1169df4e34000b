"""Every environment that runs what a model writes has the bad policy `cheat`, and no cheat earns anything.

All of `ludus qualify` takes minutes for these environments. Here are the oracle and the attacks on the grader, at one
row. The tests of code_gen, code_tests and math_with_code play every cheat at tasks whose answer only a leak can tell.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ludus_qualify import planting
from ludus_qualify.attempts import Attempt, play
from ludus_qualify.command import show_card
from ludus_qualify.oracle import Oracle
from ludus_qualify.policies import PolicyContext, exploits
from ludus_qualify.rates import CHEAT
from ludus_qualify.run import attempts_for, qualify
from oracles import ready
from rich.console import Console

from ludus import Response, tool
from ludus.environment import Environment
from ludus.qualify import cheats
from ludus.runtime.processes import shared_pool
from ludus.sandbox.resources import SandboxResources
from ludus.testing import needs_sandbox

PROGRAMS = ("code_gen", "code_tests", "math_with_code", "mini_swe_agent", "swerl_gen", "terminal")

#: Cheats that only wait for their time limit. The tests of the graders have them with a shorter limit.
ENDLESS = {"hangs", "catches_the_alarm"}

#: What is played here. tests/graders/test_repository_grading.py has more attacks on the grader of mini_swe_agent and
#: swerl_gen: here some cheats show that they arrive.
PLANTS = {f"plants_{name}" for name in planting.NAMES}
PLAYED = {
    "code_gen": PLANTS,
    "code_tests": PLANTS,
    "mini_swe_agent": PLANTS
    | {"prints_success", "exits_when_called", "overwrites_files", "writes_the_verdict", "skips"},
    "swerl_gen": PLANTS | {"exits_early", "patches_framework", "replaces_equality"},
    "terminal": PLANTS | set(cheats.NAMES) - ENDLESS,
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
    assert names >= {f"cheat/plants_{name}" for name in planting.NAMES}


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


class TrustsItsFiles(SandboxResources):
    """A grader that can be cheated: it looks for the verdict where the model works, and runs programs from there."""

    @tool
    async def bash(self, command: str) -> str:
        """Run a command."""
        return (await self.sandbox.exec(command)).text

    async def verify(self, task: Any, response: Response) -> float:
        judged = await self.sandbox.exec("PATH=$PWD:$PATH; python3 -c 'print(0)' > /dev/null || exit 1; cat reward.txt")
        return float(judged.text.strip() or 0) if judged.ok else 0.0


ROWS = [{"responses_create_params": {"input": "Work."}}]

HOOKS = """
def shell(task, command):
    return [{"call": "bash", "arguments": {"command": command}}, "Done."]


def oracle(task):
    return shell(task, "echo 1 > reward.txt")
"""


def only_attacks(context: PolicyContext) -> Iterator[tuple[str, int, Any]]:
    """The attacks on the grader, without the other bad policies."""
    return (policy for policy in exploits(context) if policy[0].startswith(CHEAT))


@needs_sandbox()
def test_the_card_has_the_rates_of_cheats_and_of_right_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus_qualify.run.exploits", only_attacks)  # each of the others starts three boxes
    (tmp_path / "hooks.py").write_text(HOOKS)
    card = qualify(TrustsItsFiles, input=ROWS, odd=0, hooks=tmp_path / "hooks.py")
    assert card.verdict == "unsound"
    assert card.cheats.total == len(planting.NAMES)
    paid = {example.partition(" at ")[0] for example in card.cheats.examples}
    assert paid >= {"cheat/plants_reward_files", "cheat/plants_sitecustomize"}
    assert (card.oracles_failed.wrong, card.oracles_failed.total) == (0, 1)
    assert card.to_row()["cheats"]["wrong"] == card.cheats.wrong
    console = Console(file=io.StringIO(), width=200)
    show_card(console, card)
    assert "attacks on the grader earned a reward" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_module_with_a_cheat_at_its_end_calls_it_for_every_function_and_method():
    methods = "    def __init__(self):\n        self.x = 1\n    def g(self):\n        return 2\n"
    module = f"def f():\n    return 1\n\nclass A:\n{methods}"
    names: dict[str, object] = {}
    exec(cheats.taking_over(module, "def cheat(*arguments):\n    return 'taken'"), names)
    assert eval("(f(), A().g(), A().x)", names) == ("taken", "taken", 1)
