"""Proofs in Coq: the kernel's word counts, and nothing that the answer prints, assumes or switches off."""

from __future__ import annotations

import json

import ludus_lab.proofs
import pytest
import pytest_asyncio
from lab import needs_installed, oracle_rewards
from ludus_lab.proofs import qualify as hooks
from ludus_lab.proofs.resources import REFUSED

from ludus import Failure, Verdict
from ludus.environment import Environment
from ludus.testing import judging, needs_sandbox

pytestmark = [needs_installed("ludus_lab.proofs"), needs_sandbox(), pytest.mark.asyncio(loop_scope="module")]
with open(f"{ludus_lab.proofs.__path__[0]}/data/example.jsonl") as lines:
    ROW = json.loads(next(lines))
TASK = Environment.load("proofs").task(ROW)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge():
    async with judging("proofs") as judge:
        yield judge


@pytest.mark.parametrize("name", ["oracle", *hooks.preserving(TASK)])
async def test_a_right_proof_is_paid(judge, name):
    script = {"oracle": hooks.oracle(TASK), **hooks.preserving(TASK)}[name]
    verdict = await judge(ROW, script)
    assert (verdict.reward, verdict.values["problem"]) == (1.0, None)


@pytest.mark.parametrize("name", sorted(hooks.breaking(TASK)))
async def test_no_axiom_and_no_trick_is_paid(judge, name):
    verdict = await judge(ROW, hooks.breaking(TASK)[name])
    assert isinstance(verdict, Verdict)
    assert (verdict.reward, verdict.values["proved"]) == (0.0, False)
    assert verdict.values["problem"]


async def test_a_statement_that_does_not_compile_is_an_error_of_the_row(judge):
    failure = await judge({**ROW, "statement": "forall n, n = ("}, hooks.oracle(TASK))
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"


async def test_a_proof_that_does_not_end_is_refused_in_time(judge):
    script = hooks.answer(TASK, f"Theorem {TASK.name} : {TASK.statement}. Proof. repeat (assert True by exact I). Qed.")
    verdict = await judge(ROW, script, seconds=1)
    assert verdict.reward == 0.0
    assert "timed out" in verdict.values["problem"] or "memory" in verdict.values["problem"]


@pytest.mark.parametrize(
    "text", ['Load "x".', 'Declare\nML Module "x".', 'Redirect "x" Print nat.', "Add LoadPath.", "Drop."]
)
async def test_commands_that_touch_files_or_code_are_refused_unread(text):
    assert REFUSED.search(text)


async def test_six_proofs_at_once_are_checked_in_sandboxes_of_their_own():
    assert await oracle_rewards("proofs", sessions=6, at_once=6) == [1.0] * 6
