"""Stored rows that are judged together: all rows of a file with the same task, wherever they stand in it.

A first reading notes where the rows of each task are, which takes some 300 bytes a row; beside that, only groups that
are being judged are in memory. A group is judged when the first of its rows has its turn, in the order of its repeats,
and each of its rows fetches its own verdict. A row that cannot be judged takes no part, and fails on its own account.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from ludus.collection.groups import FEWEST
from ludus.collection.jury import verdicts
from ludus.errors import Failure, UserError
from ludus.outcome import NAMES, Verdict
from ludus.record import Row
from ludus.rescore.scorer import Scorer
from ludus.response import Response
from ludus.runtime.boundary import attribute
from ludus.runtime.threads import in_thread
from ludus.store.stored import Stored, bad_row, parse

#: The number of a line, and where it is in the file.
Place = tuple[int, int]

#: What became of each line of a group: a verdict with its receipt, a failure, or None where nothing is to be done.
Ends = dict[int, tuple[Verdict, str] | Failure | None]


class NeedsWholeFile(Exception):
    """Whoever sees only a part of a file cannot judge groups of its rows."""


class _Judged:
    """What became of a group. It is kept until each of its lines has fetched its own end."""

    __slots__ = ("found", "whole")

    def __init__(self) -> None:
        self.found: Ends = {}
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StoredGroups:
    """The groups of one file. With `stale`, a group whose receipts are all good is left alone. `named` says that all
    rows are of one environment, whatever they say themselves."""

    def __init__(self, path: Path | None, *, stale: bool) -> None:
        self._path, self._stale = path, stale
        self.named = False
        self._places: dict[Any, list[Place]] | None = None
        self._judged: dict[Any, _Judged] = {}
        self._lock = asyncio.Lock()

    async def verdict(self, scorer: Scorer, stored: Stored) -> tuple[Verdict, str] | None:
        """The verdict on a row that has a response, and its receipt; None where there is nothing to do."""
        key, number = self._key(stored), stored.number
        places = await self._places_of(key)
        judged = self._judged.get(key)
        if judged is None:
            judged = self._judged[key] = _Judged()
            judged.found = await self._ends(scorer, places)
            judged.whole.set_result(None)
        await judged.whole
        if number not in judged.found:
            raise Failure("group_late", "the row was written while the file was being read", stage="verify")
        found = judged.found.pop(number)
        if not judged.found:
            self._judged.pop(key, None)
        if isinstance(found, Failure):
            raise found
        return found

    async def _ends(self, scorer: Scorer, places: list[Place]) -> Ends:
        """The end of every row of a group that has a response, whatever happens: others wait for theirs."""
        try:
            return await self._judge(scorer, places)
        except UserError:
            raise
        except BaseException as error:
            failure = failure_of(error)
            return {number: failure for number, _ in places}

    async def _judge(self, scorer: Scorer, places: list[Place]) -> Ends:
        pairs = await in_thread(self._read, places)
        if not pairs:
            return {}
        first, task = pairs[0][0], _content(pairs[0][0].task)
        group = [(stored, response) for stored, response in pairs if _content(stored.task) == task]
        other = f"its task is not that of line {first.number}, although both have the task_id {first.head['task_id']}"
        ends: Ends = {stored.number: bad_row(other, "verify") for stored, _ in pairs}
        receipts = scorer.player.signer.sign_group(first.task, [response.output for _, response in group])
        if self._stale and all(_is_signed(row, receipt) for (row, _), receipt in zip(group, receipts, strict=True)):
            return ends | {stored.number: None for stored, _ in group}
        if len(group) < min(FEWEST, len(places)):
            why = f"none of the other {len(places) - 1} rows of its task can be compared with it"
            return ends | {first.number: Failure("group_incomplete", why, stage="verify")}
        environment = scorer.environment
        session = environment.session(scorer.player.shared, first.seed)
        responses = [response for _, response in group]
        found = await verdicts(session, scorer.task(first.task), responses, environment.limits.verify)
        signed = zip(found, receipts, strict=True)
        return ends | {stored.number: verdict for (stored, _), verdict in zip(group, signed, strict=True)}

    async def _places_of(self, key: Any) -> list[Place]:
        if self._path is None:
            raise NeedsWholeFile
        async with self._lock:
            if self._places is None:
                self._places = await in_thread(self._survey, self._path)
        return self._places.get(key, [])

    def _survey(self, path: Path) -> dict[Any, list[Place]]:
        found: dict[Any, list[Place]] = {}
        offset = 0
        with path.open("rb", buffering=1 << 18) as file:
            for number, line in enumerate(file, start=1):
                with contextlib.suppress(Failure, RecursionError):  # the line will say so itself when it has its turn
                    found.setdefault(self._key(Stored(parse(line), number)), []).append((number, offset))
                offset += len(line)
        return found

    def _read(self, places: list[Place]) -> list[tuple[Stored, Response]]:
        """The rows of a group that have a response, and those, in the order of the repeats."""
        read: list[tuple[Stored, Response]] = []
        assert self._path is not None
        with self._path.open("rb") as file:
            for number, offset in places:
                file.seek(offset)
                stored = Stored(parse(file.readline()), number)
                with contextlib.suppress(Failure):
                    read.append((stored, stored.response()))
        return sorted(read, key=lambda pair: (pair[0].head["repeat"], pair[0].number))

    def _key(self, stored: Stored) -> Any:
        reference = None if self.named else stored.row.get("agent_ref")
        return str(reference.get("name")) if isinstance(reference, dict) else "", str(stored.head["task_id"])


def _content(task: Row) -> Row:
    return {key: task[key] for key in task if key not in NAMES}


def _is_signed(stored: Stored, receipt: str) -> bool:
    return stored.reward is not None and stored.row.get("receipt") == receipt


def failure_of(error: BaseException) -> Failure:
    """The failure of a row whose scoring raised. A row that is nested too deeply is a bad row."""
    return bad_row("it is nested too deeply") if isinstance(error, RecursionError) else attribute(error, "verify")
