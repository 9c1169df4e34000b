"""Model calls of programs, journaled as they are answered.

A restarted program makes its calls again. As long as it asks the same, it gets the same answers from the journal and no
model is asked. From the first call that is new on, the model answers. So an unmodified program goes on in the middle of
its rollout. A program whose requests never repeat (clocks, random ids) starts over, and is counted.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable
from time import perf_counter
from typing import Any

import orjson

from ludus.collection.checkpoints import WRITE_SECONDS, TurnKeeper, TurnWriter
from ludus.collection.progress import Progress
from ludus.recorder import KnownCall
from ludus.response import Response
from ludus.rollout import Job
from ludus.runtime.encoding import encode


class SavedCalls:
    """Saves the calls of one rollout's program, and knows those of an earlier run (`job.turns`)."""

    def __init__(self, keeper: TurnKeeper, job: Job, progress: Progress) -> None:
        self._keeper, self._job, self._progress = keeper, job, progress
        self._known: defaultdict[str, deque[KnownCall]] = defaultdict(deque)
        self._lines: list[bytes] = []  # that are not written
        self._count = self._number = self._used = 0
        for line in job.turns.splitlines():
            row = orjson.loads(line)
            if {"key", "answer", "record"} <= row.keys():
                self._known[row["key"]].append(KnownCall(row["answer"], row["record"]))
            self._count += 1
        self._kept = self._count

    def known(self, key: str) -> KnownCall | None:
        """The next answer to what was asked; None if nothing is known."""
        answers = self._known.get(key)
        if not answers:
            return None
        self._used += 1
        return answers.popleft()

    def keep(self, key: str, response: Response, record: dict[str, Any]) -> None:
        """The model has answered: write the answer soon."""
        job = self._job
        row = {"rollout_id": job.rollout_id, "attempt": job.attempt, "from": self._count, "key": key}
        if not self._lines:
            self._keeper.note(self)
        self._lines.append(encode({**row, "answer": response.data, "record": record}))
        self._count += 1
        now = perf_counter()
        self._keeper.write_by(now + WRITE_SECONDS, now)

    def write(self, writer: TurnWriter) -> None:
        """Write the answers that are not written."""
        lines, self._lines = self._lines, []
        for line in lines:
            self._number = writer.add(self._job, line, self._count)

    def begin(self, saved: int = 0) -> None:
        """The session is open."""

    def save(self) -> None:
        """Nothing to do: each call is kept when it is answered."""

    def settle(self) -> Awaitable[None] | None:
        """An awaitable if written calls are not safe yet."""
        return self._keeper.writer.settle(self._number) if self._number else None

    def end(self) -> None:
        """The rollout has ended: drop what is not written, and count what a restarted program was spared."""
        self._lines.clear()
        if self._kept and not self._used:
            self._progress.started_over += 1
            cause = "its program asked the model something else than before"
            self._progress.notices.append(f"rollout {self._job.rollout_id} started over: {cause}")
        elif self._kept:
            self._progress.resumed += 1
            self._progress.turns_kept += self._used
