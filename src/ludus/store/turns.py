"""The turns of rollouts in flight: `turns.jsonl`, from which a killed collection brings each rollout back.

A line holds what one turn added to its rollout: `from` is the number of turns before it, so a line with `from: 0`
starts its rollout over. Only this file's owner writes it; a worker sends its lines as bytes, which are appended unread.
When a rollout ends, its lines are not needed any more. They are removed when they are three times the lines in use, a
piece with each write, so a long run costs linear time and no write takes long.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ludus.errors import UserError
from ludus.store.drafts import draft_path
from ludus.store.journal import Journal

#: Lines that are not needed are removed from this many bytes on, so many of them with each write.
COMPACT_FROM = 4 << 20
COMPACT_PIECE = 1 << 20
#: They are removed when the file is this many times as long as the lines in use, which are copied: a smaller number
#: saves space on the disk, and writes more to it. For each byte that is added, 4 copies 0.4 bytes, and 2 copies 1.2.
COMPACT_AT = 4

_HINT = "Delete the file to start the unfinished rollouts over, then use --resume"

#: Where a line is in the file: its offset and its length.
Span = tuple[int, int]


class TurnJournal:
    """The journal of turns. `failed` is called once with the reason if the file cannot be written: then no more turns
    are kept, and the collection goes on.

        with TurnJournal(path, failed) as turns:
            turns.add("task-0", line)
            turns.flush()
            turns.end("task-0")
    """

    def __init__(self, path: Path, failed: Callable[[str], None] = lambda _: None) -> None:
        self.path = path
        self._failed = failed
        self._journal: Journal | None = Journal(path)
        for left in path.parent.glob(f".{path.name}.*.part"):  # a killed run left it: we hold the lock
            left.unlink(missing_ok=True)
        self._spans: dict[str, list[Span]] = {}  # of the rollouts that have not ended
        self._next = self._journal.size  # where the next line goes
        self._in_use = 0
        self._unwritten: list[bytes | memoryview] = []
        self._compaction: _Compaction | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def restore(self, is_wanted: Callable[[str, int], bool]) -> None:
        """Read what an earlier run left. `is_wanted` says of a rollout's id and attempt whether it has not ended."""
        assert self._journal is not None
        last: tuple[int, str] | None = None
        for number, (offset, row) in enumerate(self._journal.rows_with_offsets(_HINT), start=1):
            name, attempt = _owner(row, f"{self.path}:{number}")
            self._found(last, offset)
            last = offset, name if is_wanted(name, attempt) else ""
        self._found(last, self._journal.size)
        if not self._spans:
            self._clear()
        self._compact()

    def add(self, name: str, line: bytes | memoryview) -> None:
        """Take a line. It is written by the next `flush`."""
        if self._journal is None:
            return
        length = len(line) + 1
        spans = self._spans.get(name)
        if spans is None:
            spans = self._spans[name] = []
        spans.append((self._next, length))
        self._unwritten.append(line)
        self._next += length
        self._in_use += length

    def flush(self) -> None:
        """Write the lines that were added, with one write."""
        if not self._unwritten or self._journal is None:
            return
        lines, self._unwritten = self._unwritten, []
        try:
            self._journal.append(b"\n".join(lines))
            self._compact()
        except UserError as error:
            self._give_up(str(error))

    def end(self, name: str) -> None:
        """A rollout is recorded: its lines are not needed any more."""
        spans = self._spans.pop(name, None)
        if spans is not None:
            self._in_use -= sum([length for _, length in spans])
            if not self._spans and self._journal is not None:
                self._clear()

    def lines(self, name: str) -> bytes:
        """The lines of a rollout that has not ended, each with its newline; empty if there are none."""
        if name not in self._spans:
            return b""
        self.flush()  # may compact the file, so the spans are looked up after it
        journal, spans = self._journal, self._spans.get(name)
        return b"".join(journal.bytes_at(*span) for span in spans) if spans and journal is not None else b""

    @property
    def unfinished(self) -> int:
        """How many rollouts have lines and have not ended."""
        return len(self._spans)

    def clear(self) -> None:
        """Forget everything."""
        self._spans.clear()
        if self._journal is not None:
            self._clear()

    def close(self) -> None:
        """Write what is left. The file is removed if no rollout needs it."""
        self.flush()
        if self._compaction is not None:
            self._compaction.abandon()
        if not self._spans:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        if self._journal is not None:
            self._journal.close(sync=bool(self._spans))
            self._journal = None

    def _clear(self) -> None:
        assert self._journal is not None
        self._unwritten.clear()
        if self._compaction is not None:
            self._compaction.abandon()
            self._compaction = None
        self._journal.clear()
        self._next = self._in_use = 0

    def _found(self, line: tuple[int, str] | None, end: int) -> None:
        """Note a line of an earlier run, which goes up to `end`. A line without a name is not needed."""
        if line is not None and line[1]:
            offset, name = line
            self._spans.setdefault(name, []).append((offset, end - offset))
            self._in_use += end - offset

    def _compact(self) -> None:
        """Begin to remove lines that are not needed, or remove another piece of them."""
        assert self._journal is not None
        if self._compaction is None:
            if self._next < COMPACT_FROM or self._next < COMPACT_AT * self._in_use:
                return
            self._compaction = _Compaction(self._journal, self._spans)
        if self._compaction.advance(self._spans):
            self._journal, self._spans = self._compaction.finish(self._spans)
            self._next, self._compaction = self._journal.size, None

    def _give_up(self, why: str) -> None:
        if self._compaction is not None:
            self._compaction.abandon()
            self._compaction = None
        journal, self._journal = self._journal, None
        if journal is not None:
            with contextlib.suppress(UserError):
                journal.close()
        self._failed(why)


class _Compaction:
    """Copies the lines in use to a new file, which then takes the place of the old one."""

    def __init__(self, old: Journal, spans: dict[str, list[Span]]) -> None:
        self._old = old
        self._draft = draft_path(old.path)
        self._new = Journal(self._draft)
        self._waiting = deque(spans)  # the rollouts to copy
        self._copied: dict[str, list[Span]] = {}

    def advance(self, spans: dict[str, list[Span]]) -> bool:
        """Copy a piece. Returns whether no line is left to copy, apart from those that were added meanwhile."""
        room = COMPACT_PIECE
        while self._waiting and room > 0:
            room -= self._copy(self._waiting.popleft(), spans)
        return not self._waiting

    def finish(self, spans: dict[str, list[Span]]) -> tuple[Journal, dict[str, list[Span]]]:
        """Copy what was added meanwhile, and put the new file in place. Returns the new journal and its spans."""
        for name in spans:
            self._copy(name, spans)
        try:
            os.replace(self._draft, self._old.path)
        except OSError as error:
            raise UserError(f"cannot replace {self._old.path}: {error.strerror}") from error
        self._new.path = self._old.path
        self._old.close(sync=False)
        return self._new, {name: self._copied[name] for name in spans}

    def abandon(self) -> None:
        """Remove the new file."""
        self._new.close(sync=False)
        with contextlib.suppress(OSError):
            os.unlink(self._draft)

    def _copy(self, name: str, spans: dict[str, list[Span]]) -> int:
        """Copy the lines of a rollout that are not copied yet. Returns how many bytes that were."""
        wanted, done = spans.get(name, ()), self._copied.setdefault(name, [])
        more = wanted[len(done) :]
        if not more:
            return 0
        offset = self._new.size
        for _, length in more:
            done.append((offset, length))
            offset += length
        data = b"".join(self._old.bytes_at(*span) for span in more)
        self._new.append(data[:-1])
        return len(data)


def _owner(row: Any, where: str) -> tuple[str, int]:
    """The rollout of a line, and its attempt."""
    name = row.get("rollout_id") if isinstance(row, dict) else None
    attempt = row.get("attempt") if isinstance(row, dict) else None
    if not isinstance(name, str) or not isinstance(attempt, int):
        raise UserError(f"{where}: not a turn of a rollout: rollout_id or attempt is missing", _HINT)
    return name, attempt
