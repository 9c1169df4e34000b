"""Groups for a trainer that a real agent program played. Skipped without it: ludus harness install pi."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from harness_runs import ROWS, WRITE, Hello, needs_harness
from waiting import CEILING

from ludus import Environment
from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.harness.declaration import read_declaration
from ludus.agents.harness.policy import ShellPolicy
from ludus.model import Request
from ludus.response import Item
from ludus.testing import needs_sandbox
from ludus.train.contract import GroupFeed
from ludus.train.policy import GroupPolicy


class HalfRight(ShellPolicy):
    """Writes the file in the first repeat of a task, and something else in the second."""

    def turn(self, request: Request, done: int) -> list[Item]:
        self._commands = [WRITE if str(request.session).endswith("-0") else "echo ho > hello.txt"]
        return super().turn(request, done)


@needs_sandbox()
@needs_harness("pi")
async def test_a_trainer_gets_groups_of_a_program_with_exact_tokens_and_advantages() -> None:
    agent = HarnessAgent(HarnessAgent.Config(name="pi"))
    environment = replace(Environment.load(Hello), agent=agent)
    model = HalfRight(read_declaration("pi"), [WRITE])
    feed = GroupFeed(environment, model=model, input=ROWS, policy=GroupPolicy(size=2))
    async with asyncio.timeout(CEILING), feed:
        (group,) = [group async for group in feed]
    assert [member.reward for member in group.members] == [1.0, 0.0]
    up, down = group.sequence_advantages()
    assert [len(up), len(down)] == [1, 1], "each is one sequence, also after a call of a tool"
    assert up[0] > 0 > down[0]
    for member in group.members:
        (sequence,) = member.sequences
        written = [call["generated_ids"] for call in member.rollout.trained_calls]
        trained = [token for token, mask in zip(sequence.ids, sequence.mask, strict=True) if mask]
        assert trained == [token for ids in written for token in ids]
        assert len(written) == 2
