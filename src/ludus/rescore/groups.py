"""Groups of stored rows for `verify_group`: all rows of a file with the same task, anywhere in the file.

A first reading stores the line number and byte offset of every row by task, in about 300 bytes a row. Only groups that
are being judged are held in memory. A group is judged, in the order of the repeats, when its first row is scored. Each
row then takes its own result. A row that cannot be judged fails alone and is not part of the group.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ludus.collection.group_verifier import verify_group
from ludus.collection.groups import MIN_GROUP_SIZE
from ludus.errors import Failure, UserError
from ludus.outcome import NAMES, Verdict
from ludus.record import Row
from ludus.rescore.scorer import Scorer
from ludus.response import Response
from ludus.runtime.boundary import attribute
from ludus.runtime.regular_files import open_regular
from ludus.runtime.threads import in_thread
from ludus.store.lines import StoredLines
from ludus.store.parsing import bad_row
from ludus.store.stored import StoredRow

#: The number of a line and its byte offset.
LineOffset = tuple[int, int]

#: The results of a group by line number: a verdict with its receipt, a failure, or None if the receipt is still valid.
Results = dict[int, tuple[Verdict, str] | Failure | None]


#: Reads a line of the file as a row, given its number. Raises `Failure`.
ReadRow = Callable[[bytes, int], StoredRow]


class NeedsWholeFile(Exception):
    """Raised in a helper process: it sees one block of the file and cannot judge groups."""


class _JudgedGroup:
    """The results of a group that its lines have not taken yet. `done` is set when the group is judged."""

    __slots__ = ("done", "results")

    def __init__(self) -> None:
        self.results: Results = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StoredGroups:
    """The groups of one file. With `stale`, a group whose receipts are all valid is not judged. With
    `ignore_agent_ref`, all rows belong to one environment."""

    def __init__(self, path: Path | None, read_row: ReadRow, *, stale: bool) -> None:
        self._path, self._read_row, self._stale = path, read_row, stale
        self.ignore_agent_ref = False
        self._offsets: dict[Any, list[LineOffset]] | None = None
        self._judged: dict[Any, _JudgedGroup] = {}
        self._lock = asyncio.Lock()

    async def verdict(self, scorer: Scorer, stored: StoredRow) -> tuple[Verdict, str] | None:
        """The verdict on a row with a response, and its receipt; None if its receipt is still valid."""
        key, number = self._key(stored), stored.number
        offsets = await self._offsets_of(key)
        group = self._judged.get(key)
        if group is None:
            group = self._judged[key] = _JudgedGroup()
            group.results = await self._results(scorer, offsets)
            group.done.set_result(None)
        await group.done
        if number not in group.results:
            raise Failure("group_late", "the row was written while the file was being read", stage="verify")
        result = group.results.pop(number)
        if not group.results:
            self._judged.pop(key, None)
        if isinstance(result, Failure):
            raise result
        return result

    async def _results(self, scorer: Scorer, offsets: list[LineOffset]) -> Results:
        """The results of a group. An error is the result of every row, because all of them wait for one."""
        try:
            return await self._judge(scorer, offsets)
        except UserError:
            raise
        except BaseException as error:
            failure = row_failure(error)
            return {number: failure for number, _ in offsets}

    async def _judge(self, scorer: Scorer, offsets: list[LineOffset]) -> Results:
        pairs = await in_thread(self._read, offsets)
        if not pairs:
            return {}
        first, task = pairs[0][0], _content(pairs[0][0].task)
        group = [(stored, response) for stored, response in pairs if _content(stored.task) == task]
        differs = f"its task differs from line {first.number}, which has the same task_id {first.head['task_id']}"
        results: Results = {stored.number: bad_row(differs, "verify") for stored, _ in pairs}
        receipts = scorer.player.signer.sign_group(first.task, [response.output for _, response in group])
        if self._stale and all(_has_receipt(row, receipt) for (row, _), receipt in zip(group, receipts, strict=True)):
            return results | {stored.number: None for stored, _ in group}
        if len(group) < min(MIN_GROUP_SIZE, len(offsets)):
            why = f"none of the other {len(offsets) - 1} rows of its task can be compared with it"
            return results | {first.number: Failure("group_incomplete", why, stage="verify")}
        environment = scorer.environment
        session = environment.session(scorer.player.shared, first.seed)
        responses = [response for _, response in group]
        verdicts = await verify_group(session, scorer.task(first.task), responses, environment.limits.verify)
        signed = zip(verdicts, receipts, strict=True)
        return results | {stored.number: verdict for (stored, _), verdict in zip(group, signed, strict=True)}

    async def _offsets_of(self, key: Any) -> list[LineOffset]:
        if self._path is None:
            raise NeedsWholeFile
        async with self._lock:
            if self._offsets is None:
                self._offsets = await in_thread(self._survey, self._path)
        return self._offsets.get(key, [])

    def _survey(self, path: Path) -> dict[Any, list[LineOffset]]:
        offsets: dict[Any, list[LineOffset]] = {}
        with StoredLines(path) as lines:
            for number, line in lines.counted():
                with contextlib.suppress(Failure, RecursionError):  # the line fails when it is scored
                    offsets.setdefault(self._key(self._read_row(line, number)), []).append((number, lines.offset))
        return offsets

    def _read(self, offsets: list[LineOffset]) -> list[tuple[StoredRow, Response]]:
        """The rows of a group that have a response, each with its response, in the order of the repeats."""
        read: list[tuple[StoredRow, Response]] = []
        assert self._path is not None
        with open_regular(self._path) as file:
            for number, offset in offsets:
                file.seek(offset)
                stored = self._read_row(file.readline(), number)
                with contextlib.suppress(Failure):
                    read.append((stored, stored.response()))
        return sorted(read, key=lambda pair: (pair[0].head["repeat"], pair[0].number))

    def _key(self, stored: StoredRow) -> Any:
        reference = None if self.ignore_agent_ref else stored.task.get("agent_ref")
        return str(reference.get("name")) if isinstance(reference, dict) else "", str(stored.head["task_id"])


def _content(task: Row) -> Row:
    return {key: task[key] for key in task if key not in NAMES}


def _has_receipt(stored: StoredRow, receipt: str) -> bool:
    return stored.reward is not None and stored.row.get("receipt") == receipt


def row_failure(error: BaseException) -> Failure:
    """The failure of a row whose scoring raised an error. A RecursionError means a bad row: nested too deeply."""
    return bad_row("nested too deeply") if isinstance(error, RecursionError) else attribute(error, "verify")
