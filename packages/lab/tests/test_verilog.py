"""Verilog modules: outputs at every step count, and a hostile module cannot speak for the bench."""

from __future__ import annotations

import json
from pathlib import Path

import ludus_lab.verilog
import pytest
import pytest_asyncio
from lab import needs_installed, oracle_rewards
from ludus_lab.verilog import qualify as hooks

from ludus.environment import Environment
from ludus.testing import judging, needs_sandbox

pytestmark = [needs_installed("ludus_lab.verilog"), needs_sandbox(), pytest.mark.asyncio(loop_scope="module")]
ROWS = [json.loads(line) for line in Path(ludus_lab.verilog.__path__[0], "data/example.jsonl").read_text().splitlines()]
TASKS = [Environment.load("verilog").task(row) for row in ROWS]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge():
    async with judging("verilog") as judge:
        yield judge


@pytest.mark.parametrize("number", range(len(ROWS)))
async def test_the_module_of_every_row_is_right(judge, number):
    verdict = await judge(ROWS[number], hooks.oracle(TASKS[number]))
    assert (verdict.reward, verdict.components) == (1.0, {"passed": 1.0, "steps": 1.0})


@pytest.mark.parametrize("name", hooks.preserving(TASKS[0]))
async def test_comments_directives_and_helpers_are_accepted(judge, name):
    assert (await judge(ROWS[0], hooks.preserving(TASKS[0])[name])).reward == 1.0


@pytest.mark.parametrize("number", [0, 4])
@pytest.mark.parametrize("name", sorted(hooks.breaking(TASKS[0])))
async def test_no_wrong_or_hostile_module_is_paid(judge, name, number):
    verdict = await judge(ROWS[number], hooks.breaking(TASKS[number])[name], seconds=2)
    assert verdict.reward == 0.0
    assert verdict.values["problem"]


async def test_a_module_that_is_nearly_right_earns_only_a_component(judge):
    text = TASKS[1].solution.replace("data[7]", "1'b0")
    verdict = await judge(ROWS[1], hooks.answer(TASKS[1], text))
    assert verdict.reward == 0.0
    assert 0 < verdict.components["steps"] < 1


@pytest.mark.parametrize(
    "change",
    [
        {"module": "bench"},
        {"module": "x;y"},
        {"steps": []},
        {"expected": []},
        {"steps": [[0, 0, 2]], "expected": [[0]]},
    ],
)
async def test_a_bench_that_cannot_be_built_is_refused(change):
    with pytest.raises(ValueError, match="bench"):
        Environment.load("verilog").task({**ROWS[0], "bench": {**ROWS[0]["bench"], **change}})


async def test_twelve_modules_at_once_are_simulated_in_sandboxes_of_their_own():
    assert await oracle_rewards("verilog", sessions=24, at_once=12) == [1.0] * 24
