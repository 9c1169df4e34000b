"""Judging groups with `verify_group`: the worker that adds the last rollout of a group judges and records the group.

A group is judged with a new session that is not opened, under the `verify` deadline. An error there fails every rollout
of the group. A single rollout of a task with more repeats cannot be compared and fails with kind `group_incomplete`.

A resumed run may add rollouts to a task with recorded ones (the run was killed, a failed repeat is retried, repeats
were added). The new rollouts are judged together with the recorded ones, whose rewards do not change. `ludus verify
--stale` judges such tasks again as one group.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from ludus.collection.groups import Group, IncompleteGroups
from ludus.collection.player import Player
from ludus.errors import Failure, defined_at
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Rollout
from ludus.runtime.boundary import step
from ludus.runtime.threads import awaited
from ludus.task import private


class GroupVerifier:
    """Judges the groups of one collection. `players` are by environment name, `read` returns the row of a recorded
    rollout, and `record` is called with the rollouts of each judged group."""

    def __init__(
        self,
        players: Mapping[str, Player],
        read: Callable[[Any], dict[str, Any]],
        record: Callable[[list[Rollout]], Awaitable[None]],
        *,
        tokens: bool = False,
    ) -> None:
        self._players, self._read, self._record = players, read, record
        self._require_tokens = tokens
        self._expired: asyncio.Queue[Group | None] = asyncio.Queue()
        self.groups = IncompleteGroups(asyncio.get_running_loop().call_later, self._expired.put_nowait)
        self.waiting = 0

    async def add(self, rollout: Rollout, mask: str | None) -> None:
        """Add a rollout that was played, and judge its group if it is now complete."""
        group = self.groups.add(rollout, mask)
        if rollout.error is not None:
            await self._record([rollout])
        else:
            self.waiting += 1
        if group is not None:
            await self._judge(group)

    async def judge_expired(self) -> None:
        """Judge the groups that are closed by their deadline, until `close` is called."""
        try:
            async with asyncio.TaskGroup() as judging:
                while (group := await self._expired.get()) is not None:
                    judging.create_task(self._judge(group))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def close(self) -> None:
        """Drop the incomplete groups, and end `judge_expired` after the groups in its queue."""
        self.groups.clear()
        self._expired.put_nowait(None)

    async def _judge(self, group: Group) -> None:
        rollouts, began = [member.rollout for member in group.members], perf_counter()
        try:
            if not group.is_comparable:
                why = f"none of the other {group.size - 1} rollouts of its task was available to compare it with"
                raise Failure("group_incomplete", why, stage="verify")
            await self._judge_members(group)
        except Failure as failure:
            for rollout in rollouts:
                rollout.fail(failure)
        now = perf_counter()
        for member in group.members:
            timings = member.rollout.timings
            timings["group"], timings["verify"] = began - member.since, now - began
            timings["total"] = timings.get("total", 0.0) + now - member.since
        await self._record(rollouts)
        self.waiting -= len(rollouts)

    async def _judge_members(self, group: Group) -> None:
        """Judge the members together with the recorded rollouts of their task, in the order of the repeats."""
        environment, members = group.environment, sorted(group.members, key=lambda member: member.rollout.job.repeat)
        job = members[0].rollout.job
        repeats = [(member.rollout.job.repeat, member.rollout.response or Response.of()) for member in members]
        rows = map(self._read, group.recorded)
        repeats += [(row["repeat"], Response(row.get("response") or {})) for row in rows]
        order = sorted(range(len(repeats)), key=lambda index: repeats[index][0])
        responses = [repeats[index][1] for index in order]
        player = self._players[environment.name]
        session = environment.session(player.shared, job.seed)
        task = environment.task(private(job.row))  # a rollout's session may have changed its task
        verdicts = await verify_group(session, task, responses, environment.limits.verify)
        receipts = player.signer.sign_group(job.row, [response.output for response in responses])
        for index, verdict, receipt in zip(order, verdicts, receipts, strict=True):
            if index < len(members):  # recorded rollouts keep their rewards
                member = members[index]
                member.rollout.judge(verdict, member.mask)
                member.rollout.receipt = receipt
                if self._require_tokens:
                    member.rollout.require_tokens()


async def verify_group(session: Resources, task: Any, responses: list[Response], seconds: float) -> list[Verdict]:
    """Call `session.verify_group` with a timeout. Returns one verdict per response; an error is a `Failure`."""
    verdicts = await step("verify", seconds, awaited(session.verify_group, task, responses))
    if not isinstance(verdicts, (list, tuple)) or len(verdicts) != len(responses):
        returned = f"{len(verdicts)} verdicts" if isinstance(verdicts, (list, tuple)) else f"{verdicts!r:.80}"
        cause = f"verify_group gave {returned} for {len(responses)} responses: return one for each"
        raise Failure("bad_verdict", cause, stage="verify", where=defined_at(session.verify_group))
    return [
        copy.copy(Verdict.of(verdict, session.verify_group)) for verdict in verdicts
    ]  # masking one rollout must not mask another
