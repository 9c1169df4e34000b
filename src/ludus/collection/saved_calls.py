"""Model calls of programs, journaled as they are answered.

A restarted program makes its calls again. As long as it asks the same, it gets the same answers from the journal and no
model is asked. From the first call that is new on, the model answers. So an unmodified program goes on in the middle of
its rollout. A request is the same if its digest is, or its digest without volatile text (see `agents.volatile`). Saved
answers that a program did not ask for again are lost; a rollout that loses all of them has started over. Both are
counted.
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
from ludus.response import Item, Response
from ludus.rollout import Job
from ludus.runtime.encoding import encode


class _Saved:
    """A saved call. `asked` are the items with volatile text that the model read."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.key: str = row["key"]
        self.alike: str = row.get("alike", self.key)
        self.answer: dict[str, Any] = row["answer"]
        self.record: dict[str, Any] = row["record"]
        self.asked: list[Item] | None = row.get("asked")
        self.is_used = False


class SavedCalls:
    """Saves the calls of one rollout's program, and knows those of an earlier run (`job.turns`)."""

    def __init__(self, keeper: TurnKeeper, job: Job, progress: Progress) -> None:
        self._keeper, self._job, self._progress = keeper, job, progress
        self._known: defaultdict[str, deque[_Saved]] = defaultdict(deque)
        self._lines: list[bytes] = []  # that are not written
        self._count = self._number = self._used = self._alike = self._answers = 0
        for line in job.turns.splitlines():
            row = orjson.loads(line)
            if {"key", "answer", "record"} <= row.keys():
                self._answers += 1
                call = _Saved(row)
                for key in dict.fromkeys((call.key, call.alike)):
                    self._known[key].append(call)
            self._count += 1
        self._kept = self._count

    @property
    def has_answers(self) -> bool:
        """Whether there are answers of an earlier run that nobody asked for yet."""
        return self._used < self._answers

    def known(self, key: str, alike: str) -> KnownCall | None:
        """The next answer to what was asked, by its digest, or by its digest without volatile text; else None."""
        for digest in (key, alike):
            for call in self._known.get(digest, ()):
                if not call.is_used:
                    call.is_used = True
                    self._used += 1
                    is_same = call.key == key
                    self._alike += not is_same
                    return KnownCall(call.answer, call.record, None if is_same else call.asked)
        return None

    def counts(self) -> dict[str, int]:
        """The answers of an earlier run: `kept_calls`, those `alike_calls` among them, and `lost_calls`."""
        return {"kept_calls": self._used, "alike_calls": self._alike, "lost_calls": self._answers - self._used}

    def keep(
        self, key: str, response: Response, record: dict[str, Any], alike: str, asked: list[Item] | None = None
    ) -> None:
        """The model has answered: write the answer soon."""
        job = self._job
        row = {"rollout_id": job.rollout_id, "attempt": job.attempt, "from": self._count, "key": key}
        if asked is not None:
            row |= {"alike": alike, "asked": asked}
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
            cause = "its program asked the model a different question"
            self._progress.notices.append(f"rollout {self._job.rollout_id} started over: {cause}")
        elif self._kept:
            self._progress.resumed += 1
            self._progress.turns_kept += self._used
            self._progress.turns_alike += self._alike
        self._progress.turns_lost += self._answers - self._used
