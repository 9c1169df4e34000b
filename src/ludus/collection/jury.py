"""The verdicts on groups: whoever brings the last rollout of a group has it judged, and all of it is recorded at once.

A group is judged on resources of its own that were never opened, under the `verify` deadline. What goes wrong there is
the failure of every rollout in it. A rollout that was left alone cannot be judged: `group_incomplete`.

A task of which some rollouts are recorded already (the run was killed, a repeat failed and is tried again, more repeats
are wanted) is completed: the new ones are judged together with the recorded ones, whose rewards stay as they are. No
reward is given twice. `ludus verify --stale` judges such tasks as one group.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from ludus.collection.groups import Group, Groups
from ludus.collection.player import Player
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Rollout
from ludus.runtime.boundary import step
from ludus.runtime.threads import awaited
from ludus.store.journal import Journal
from ludus.task import private


class Jury:
    """Judges the groups of one collection. It gets the players by environment, the journal with what was `recorded`
    before, and where to `keep` rollouts that are judged."""

    def __init__(
        self,
        players: Mapping[str, Player],
        recorded: Journal | None,
        keep: Callable[[list[Rollout]], Awaitable[None]],
        *,
        tokens: bool = False,
    ) -> None:
        self._players, self._recorded, self._keep = players, recorded, keep
        self._tokens = tokens
        self._expired: asyncio.Queue[Group | None] = asyncio.Queue()
        self.groups = Groups(asyncio.get_running_loop().call_later, self._expired.put_nowait)
        self.waiting = 0

    async def take(self, rollout: Rollout, mask: str | None) -> None:
        """Take in a rollout that was played, and judge its group if it was the last of it."""
        group = self.groups.arrived(rollout, mask)
        if rollout.error is not None:
            await self._keep([rollout])
        else:
            self.waiting += 1
        if group is not None:
            await self._judge(group)

    async def judge_expired(self) -> None:
        """Judge groups whose time is up, until `close`."""
        try:
            async with asyncio.TaskGroup() as judging:
                while (group := await self._expired.get()) is not None:
                    judging.create_task(self._judge(group))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def close(self) -> None:
        """Nothing comes any more: judge what has expired, and forget whoever still waits."""
        self.groups.stop()
        self._expired.put_nowait(None)

    async def _judge(self, group: Group) -> None:
        rollouts, began = [member.rollout for member in group.members], perf_counter()
        try:
            if not group.enough:
                why = f"none of the other {group.wanted - 1} rollouts of its task is there to compare it with"
                raise Failure("group_incomplete", why, stage="verify")
            await self._give_verdicts(group)
        except Failure as failure:
            for rollout in rollouts:
                rollout.fail(failure)
        now = perf_counter()
        for member in group.members:
            timings = member.rollout.timings
            timings["group"], timings["verify"] = began - member.since, now - began
            timings["total"] = timings.get("total", 0.0) + now - member.since
        await self._keep(rollouts)
        self.waiting -= len(rollouts)

    async def _give_verdicts(self, group: Group) -> None:
        """Judge the members among all answers to their task, in the order of the repeats."""
        environment, members = group.environment, sorted(group.members, key=lambda member: member.rollout.job.repeat)
        job = members[0].rollout.job
        answers = [(member.rollout.job.repeat, member.rollout.response or Response.of()) for member in members]
        if self._recorded is not None:
            rows = (self._recorded.at(place) for place in group.recorded)
            answers += [(row["repeat"], Response(row.get("response") or {})) for row in rows]
        order = sorted(range(len(answers)), key=lambda index: answers[index][0])
        responses = [answers[index][1] for index in order]
        player = self._players[environment.name]
        session = environment.session(player.shared, job.seed)
        task = environment.task(private(job.row))  # a session may have changed its own
        found = await verdicts(session, task, responses, environment.limits.verify)
        receipts = player.signer.sign_group(job.row, [response.output for response in responses])
        for index, verdict, receipt in zip(order, found, receipts, strict=True):
            if index < len(members):
                member = members[index]
                member.rollout.judge(verdict, member.mask)
                member.rollout.receipt = receipt
                if self._tokens:
                    member.rollout.require_tokens()


async def verdicts(session: Resources, task: Any, responses: list[Response], seconds: float) -> list[Verdict]:
    """What an environment makes of the answers to a task: one verdict each, or a `Failure` that they all share."""
    found = await step("verify", seconds, awaited(session.verify_group, task, responses))
    if not isinstance(found, (list, tuple)) or len(found) != len(responses):
        what = f"{len(found)} verdicts" if isinstance(found, (list, tuple)) else f"{found!r:.80}"
        raise Failure("bad_verdict", f"verify_group gave {what} for {len(responses)} responses", stage="verify")
    return [copy.copy(Verdict.of(verdict)) for verdict in found]  # two may share one, and are masked apart
