"""The model writes unit tests for a function that it knows only from its description.

Good tests pass on every right implementation and fail on every wrong one. The reward is the share of wrong
implementations that the tests catch, and 0 if the tests refuse a right one.
"""

from __future__ import annotations

import asyncio

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
        accepted = await self.run(task.right * 2, tests.code)  # twice, to catch tests that toss a coin
        if not all(result.ok for result in accepted):
            return Verdict(0.0, problem="the tests refuse a right implementation", caught=0)
        refused = await self.run(task.wrong, tests.code)
        caught = sum(result.exit_code == 1 for result in refused)  # an exception, and not a timeout
        return Verdict(caught / len(task.wrong), problem="", caught=caught)

    async def run(self, implementations: list[str], tests: str) -> list[ExecResult]:
        """How the tests end, for each implementation."""
        return await asyncio.gather(
            *(self.run_one(f"{implementation}\n\n{tests}") for implementation in implementations)
        )

    async def run_one(self, program: str) -> ExecResult:
        """Run in a fresh sandbox: in a used one, tests could count the runs and so know which is which."""
        async with await self.shared.open(self.sandbox.spec) as sandbox:
            return await sandbox.python(program, timeout=self.config.seconds)
