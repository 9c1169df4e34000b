"""Plays rollouts for trainers that ask for them one by one, or one group at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import Any, Unpack

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.errors import UserError
from ludus.train.contract import GroupFeed
from ludus.train.group import TrainingGroup, TrainingMember
from ludus.train.policy import GroupPolicy
from ludus_trainers.rows import TrainingRow, rows_of, task_of

_LOG = logging.getLogger(__name__)


class NotTrainable(UserError):
    """A rollout failed, was masked or has several sequences, and the trainer has no way to leave it out."""


class RolloutPlayer:
    """Plays rows of an environment with a trainer's policy. `options` are those of `ludus.collect`.

    It starts with the first rollout, on the event loop of the trainer. `policy` says how often a failed rollout is
    replaced (`replacements`), and when a straggler is cancelled (`deadline`). `counts` says what became of the
    rollouts: trained, failed, masked, missing and several_sequences.
    """

    def __init__(
        self,
        environment: Environments = None,
        *,
        policy: GroupPolicy | None = None,
        **options: Unpack[CollectArguments],
    ) -> None:
        self._environment, self._options = environment, options
        self._options.setdefault("concurrency", 1024)
        self._policy = replace(policy or GroupPolicy(), extra=0, min_size=0, keep_without_signal=True)
        self._feed: GroupFeed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counts: Counter[str] = Counter()

    async def group(self, row: dict[str, Any], size: int) -> TrainingGroup:
        """Play a group of a row."""
        group = await (await self._started(row)).play(task_of(row), row, size)
        for member in group.failures:
            _LOG.warning("a rollout of %s failed: %s", group.task_id, member.failure)
        self.counts["failed"] += len(group.failures)
        self.counts["missing"] += max(0, size - len(group.members))
        for member in group.members:
            self.counts[self._kind(member)] += 1
        return group

    async def member(self, row: dict[str, Any]) -> TrainingMember | None:
        """Play one rollout; None if it failed, or was cancelled at the deadline."""
        return next(iter((await self.group(row, 1)).members), None)

    async def single_row(self, row: dict[str, Any]) -> TrainingRow:
        """Play a row until a rollout can be trained on as one sequence, at most `replacements` times more.

        For trainers that need exactly one sequence for each request. Raises `NotTrainable`.
        """
        before = self.counts.copy()
        for _ in range(self._policy.replacements + 1):
            member = await self.member(row)
            rows = rows_of(member) if member is not None else []
            if len(rows) == 1:
                return rows[0]
        ends = ", ".join(f"{count} {name}" for name, count in (self.counts - before).items())
        raise NotTrainable(f"no rollout of task {task_of(row)} can be trained on: {ends}")

    async def close(self) -> None:
        """Cancel what runs and close the sessions."""
        if self._feed is not None:
            feed, self._feed = self._feed, None
            await feed.__aexit__(None, None, None)

    def _kind(self, member: TrainingMember) -> str:
        if not member.trains:
            return "masked"
        several = self._options.get("tokens", True) and len(rows_of(member)) > 1
        return "several_sequences" if several else "trained"

    async def _started(self, row: dict[str, Any]) -> GroupFeed:
        loop = asyncio.get_running_loop()
        if self._feed is None:
            options: CollectArguments = {**self._options, "input": [row]}
            options.pop("dataset", None)
            self._feed, self._loop = GroupFeed(self._environment, policy=self._policy, **options), loop
            await self._feed.__aenter__()
        elif loop is not self._loop:
            raise UserError("a player belongs to one event loop", "Make one RolloutPlayer for each event loop")
        return self._feed
