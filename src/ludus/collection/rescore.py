"""Scoring stored rollouts again: a file of rows in, the same rows with today's rewards out, in the same order.

Rows stream through a fixed number of workers, so memory depends neither on the file nor on how slow a judge is. A
verifier that answers at once is awaited where it stands: no task is made for a row. What is answered out of turn waits,
encoded, until it is its turn to be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.collection.api import rare_collections, run_to_end
from ludus.collection.changes import Changes
from ludus.collection.journal import Journal
from ludus.collection.run import Files
from ludus.collection.scoring import Answer, Scorers, Which
from ludus.deadline import Deadline
from ludus.errors import UserError

#: How many bytes of lines may wait for their turn, and how many are written at once.
HELD = 32 << 20
BLOCK = 256 << 10

#: Seconds between two looks at the rest of the world, and between two writes.
BREATH = 0.005
FLUSH = 0.5


class Rescoring:
    """One pass over a file. `changes` is what it found; `done`, `read` and `size` (bytes) say how far it has come."""

    def __init__(
        self,
        source: str | Path,
        environment: Which | None = None,
        *,
        output: str | Path | None = None,
        settings: dict[str, Any] | None = None,
        stale: bool = False,
        concurrency: int = 64,
    ) -> None:
        self.source = rollouts_file(Path(source))
        self.output = Path(output) if output is not None else None
        self.changes = Changes()
        self.concurrency = concurrency
        self.taken = self.done = self.read = self.size = 0
        self.started = self.last_change = time.perf_counter()
        self._environment, self._settings, self._stale = environment, settings or {}, stale
        self._writer: Output | None = None
        self._waiting: dict[int, Answer] = {}
        self._held = 0
        self._moved = asyncio.Event()
        self._breathe = 0.0

    async def run(self) -> None:
        """Answer every row. However it ends, what is in the output is whole."""
        async with contextlib.AsyncExitStack() as stack:
            lines = stack.enter_context(contextlib.closing(self._lines()))
            first = next(lines, None)
            if first is None:
                raise UserError(f"{self.source} holds no rows")
            scorers = Scorers(stack, self._settings, sign=self.output is not None, stale=self._stale)
            if self._environment is not None:
                await scorers.use(self._environment)
            if self.output is not None:
                self._writer = stack.enter_context(Output(self.output))
            with rare_collections():
                await self._all(_again(first, lines), scorers)
            if self._writer is not None:
                self._writer.finish()

    async def _all(self, lines: Iterator[tuple[int, bytes]], scorers: Scorers) -> None:
        flushing = asyncio.create_task(self._flush_now_and_then())
        workers = [asyncio.create_task(self._work(lines, scorers)) for _ in range(self.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in (flushing, *workers):
                task.cancel()
            await asyncio.gather(flushing, *workers, return_exceptions=True)

    async def _work(self, lines: Iterator[tuple[int, bytes]], scorers: Scorers) -> None:
        deadline = Deadline(whole=float(1 << 30), shortest=60.0)
        deadline.start()
        try:
            while True:
                while self._held > HELD:
                    self._moved.clear()
                    await self._moved.wait()
                taken = next(lines, None)
                if taken is None:
                    return
                place = self.taken
                self.taken += 1
                self._deliver(place, await scorers.answer(*taken, deadline))
                if (now := time.perf_counter()) > self._breathe:
                    self.last_change = now
                    await asyncio.sleep(0)
                    self._breathe = time.perf_counter() + BREATH
        finally:
            deadline.stop()

    def _deliver(self, place: int, answer: Answer) -> None:
        waiting = self._waiting
        if place != self.done:
            waiting[place] = answer
            self._held += len(answer.line)
            return
        self._record(answer)
        while waiting and (later := waiting.pop(self.done, None)) is not None:
            self._held -= len(later.line)
            self._record(later)
        self._moved.set()

    def _record(self, answer: Answer) -> None:
        if self._writer is not None:
            self._writer.add(answer.line)
        self.changes.add(answer)
        self.done += 1

    async def _flush_now_and_then(self) -> None:
        while self._writer is not None:
            await asyncio.sleep(FLUSH)
            self._writer.flush()

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that hold anything, with their numbers and their ends."""
        try:
            with self.source.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                for number, line in enumerate(file, start=1):
                    self.read += len(line)
                    if not line.isspace():
                        yield number, line if line.endswith(b"\n") else line + b"\n"
        except OSError as error:
            raise UserError(f"cannot read {self.source}: {error.strerror}") from error


class Output:
    """Where the answers go. A new file grows while rows are answered; one that is there already, which may be the one
    that is being read, is replaced when all of them are. Only whole lines are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it is not a file", "Choose another --output")
        self.draft = path.with_name(f"{path.name}.part") if path.exists() else path
        self._lines: list[bytes] = []
        self._size = 0
        self._journal = Journal(self.draft)
        self._journal.clear()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *exc: object) -> None:
        self.flush()
        self._journal.close()

    def add(self, line: bytes) -> None:
        """Write a line, soon."""
        self._lines.append(line)
        self._size += len(line)
        if self._size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write what has been added."""
        if self._lines:
            block, self._lines, self._size = b"".join(self._lines), [], 0
            self._journal.append(block[:-1])

    def finish(self) -> None:
        """Everything is there: put it in its place."""
        self.flush()
        self._journal.close()
        if self.draft != self.path:
            self.draft.replace(self.path)


def rollouts_file(given: Path) -> Path:
    """The file that is meant by a collection's folder or by a file."""
    try:
        given.stat()
    except OSError as error:
        raise UserError(f"cannot read {given}: {error.strerror}", "Name a collection's folder or a file") from error
    if not given.is_dir():
        return given
    found = Files(given).rollouts
    if not found.exists():
        raise UserError(f"{given} holds no rollouts.jsonl", "Collect some with: ludus collect ENV --output DIR")
    return found


def rescore(source: str | Path, environment: Which | None = None, **options: Any) -> Changes:
    """Score stored rollouts again, or any rows with a task's fields and a `response`.

        changes = rescore("runs/first", "mcqa", settings={"resources.grading_mode": "lenient_boxed"})
        changes.counts["changed"]

    Keyword arguments are those of `Rescoring`.
    """
    rescoring = Rescoring(source, environment, **options)
    run_to_end(rescoring.run())
    return rescoring.changes


def _again(first: tuple[int, bytes], rest: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    yield first
    yield from rest
