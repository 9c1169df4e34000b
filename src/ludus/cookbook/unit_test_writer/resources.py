"""The model writes unit tests for a function that it knows only from its description.

Good tests pass on every right implementation and fail on every wrong one. The reward is the share of wrong
implementations that the tests catch, and 0 if the tests refuse a right one.
"""

from __future__ import annotations

import asyncio
import random

import ludus
from ludus import Response, Verdict
from ludus.graders.code_blocks import last_block
from ludus.sandbox.protocol import ExecResult
from ludus.sandbox.resources import SandboxConfig, SandboxResources


class UnitTestWriter(SandboxResources):
    """Runs the tests in sandboxes: a model wrote them, so they may do anything."""

    class Task(ludus.Task):
        right: list[str]  # implementations with the same behaviour, written differently
        wrong: list[str]  # each with one mistake
        solution: str  # tests that catch every mistake

    class Config(SandboxConfig):
        seconds: float = 5.0

    async def verify(self, task: Task, response: Response) -> Verdict:
        tests = last_block(response.output_text)
        if tests is None:
            return Verdict(0.0, problem="no fenced block", caught=0)
        runs = in_secret_order(task.right, task.wrong)
        results = await asyncio.gather(*(self.run_one(f"{source}\n\n{tests.code}") for source, _ in runs))
        ended = [(is_right, result) for (_, is_right), result in zip(runs, results, strict=True)]
        if not all(result.ok for is_right, result in ended if is_right):
            return Verdict(0.0, problem="the tests refuse a right implementation", caught=0)
        # an exception, and not a timeout
        caught = sum(result.exit_code == 1 for is_right, result in ended if not is_right)
        return Verdict(caught / len(task.wrong), problem="", caught=caught)

    async def run_one(self, program: str) -> ExecResult:
        """Run in a fresh sandbox: in a used one, tests could count the runs and so know which is which."""
        async with await self.shared.open(self.sandbox.spec) as sandbox:
            return await sandbox.python(program, timeout=self.config.seconds)


def in_secret_order(right: list[str], wrong: list[str]) -> list[tuple[str, bool]]:
    """All runs, and whether their implementation is right: tests must not know by the clock which one they judge.

    Right implementations run twice, to catch tests that toss a coin.
    """
    runs = [(source, True) for source in right * 2] + [(source, False) for source in wrong]
    random.SystemRandom().shuffle(runs)
    return runs
