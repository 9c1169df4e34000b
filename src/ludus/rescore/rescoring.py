"""Scoring stored rollouts again: a file of rows in, the same rows with today's rewards out, in the same order.

Rows stream through a fixed number of workers, so memory depends neither on the file nor on how slow a judge is. Where
the verifier turns out never to wait for anything, a processor is all it takes, and the others of this machine help.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.rescore.changes import Changes
from ludus.rescore.child import Order, answer_block, close, prepare
from ludus.rescore.ordered import Lineup, Part, answer_all
from ludus.rescore.scoring import Answer, Scorers, Which
from ludus.runtime.processes import ProcessPool
from ludus.runtime.running import fewer_garbage_collections, run_to_end
from ludus.store.journal import Journal
from ludus.store.lines import Source
from ludus.store.run import Files

#: How many bytes are written at once, and after how many seconds at the latest.
WRITTEN = 256 << 10
FLUSH = 0.5

#: Bytes that another process gets at once, and how many must be left to be worth starting one.
BLOCK = 1 << 20
WORTH_HELP = 16 << 20
MOST_HELPERS = 7
HELP_SECONDS = 3600.0

#: Seconds after which it is clear whether rows wait for anything.
LOOK = 0.02


class Rescoring:
    """One pass over a file. `changes` is what it found so far."""

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
        self.path = rollouts_file(Path(source))
        self.output = Path(output) if output is not None else None
        self.changes = Changes()
        self.source: Source | None = None
        self.started = self.last_change = time.perf_counter()
        self.lineup: Lineup | None = None
        self._environment, self._settings, self._stale = environment, settings or {}, stale
        self._concurrency = concurrency
        self._helpers = 0
        self.writer: Output | None = None

    async def run(self) -> None:
        """Answer every row. However it ends, what is in the output is whole."""
        async with contextlib.AsyncExitStack() as stack:
            self.source = stack.enter_context(Source(self.path))
            signs = self.output is not None
            scorers = Scorers(stack, self._settings, sign=signs, stale=self._stale, whole=self.path)
            if self._environment is not None:
                await scorers.use(self._environment)
            if self.output is not None:
                self.writer = stack.enter_context(Output(self.output))
            self.lineup = Lineup(self.source, scorers, self._record)
            with fewer_garbage_collections():
                await self._answer(self.lineup, scorers)
            if not self.changes.rows:
                raise UserError(f"{self.path} holds no rows")
            if self.writer is not None:
                self.writer.finish()

    async def _answer(self, lineup: Lineup, scorers: Scorers) -> None:
        others = [asyncio.create_task(self._flush_now_and_then()), asyncio.create_task(self._help(lineup, scorers))]
        try:
            await lineup.run(self._concurrency)
            if self._helpers or others[1].done():  # one who is not ready yet need not become it
                await others[1]
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def _record(self, answer: Answer | Part) -> None:
        if self.writer is not None:
            self.writer.add(answer.line)
        if isinstance(answer, Part):
            self.changes.merge(answer.changes)
        else:
            self.changes.add(answer)

    async def _flush_now_and_then(self) -> None:
        rows = 0
        while True:
            await asyncio.sleep(FLUSH)
            if self.writer is not None:
                self.writer.flush()
            if self.changes.rows != rows:
                rows, self.last_change = self.changes.rows, time.perf_counter()

    async def _help(self, lineup: Lineup, scorers: Scorers) -> None:
        """Give blocks of lines to other processes, where that is safe and worth it."""
        await asyncio.sleep(LOOK)
        named = self._environment
        movable = named is None or isinstance(named, (str, Path))
        alone = self._concurrency == 1 or lineup.in_flight or not scorers.stand_alone
        helpers = min(_processors() - 1, MOST_HELPERS)
        if not movable or alone or helpers < 1 or self.source is None or self.source.left < WORTH_HELP:
            return
        where = str(named) if named is not None else None
        order = pickle.dumps(Order(where, self._settings, self.output is not None, self._stale))
        async with ProcessPool(helpers, memory=None) as pool:
            await asyncio.gather(*(self._delegate(lineup, scorers, pool, order) for _ in range(helpers)))
            closing = (pool.run(close, order) for _ in range(helpers))
            await asyncio.gather(*closing, return_exceptions=True)

    async def _delegate(self, lineup: Lineup, scorers: Scorers, pool: ProcessPool, order: bytes) -> None:
        try:
            await pool.run(prepare, order)
            self._helpers += 1
        except Exception:  # help that fails is no help, and nothing else: we can do it ourselves
            return
        helped = True
        while helped and (taken := await lineup.take(BLOCK)) is not None:
            place, block = taken
            try:
                lines, changes = await pool.run(answer_block, order, self.path, block, timeout=HELP_SECONDS)
                part = Part(block.read(self.path) if lines is None else lines, changes)
            except Exception:
                helped = False
                with Source(self.path, block) as source:
                    part = await answer_all(source, scorers, self._concurrency)
            lineup.deliver(place, part)


class Output:
    """Where the answers go. A new file grows while rows are answered; one that is there already, which may be the one
    that is being read, is replaced when all of them are. Only whole lines are written."""

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it is not a file", "Choose another --output")
        self.path = path = path.resolve()  # what a link leads to is what is meant
        self.draft = path.with_name(f"{path.name}.part") if path.exists() else path
        self._lines: list[bytes] = []
        self._size = 0
        self._journal = Journal(self.draft, "What is being read is as it was: make room, then run it again")
        self._journal.clear()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *exc: object) -> None:
        self.flush()
        if self._journal.empty:
            self.draft.unlink(missing_ok=True)
        self._journal.close()

    def add(self, line: bytes) -> None:
        """Write one or more lines, soon."""
        self._lines.append(line)
        self._size += len(line)
        if self._size >= WRITTEN:
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
            shutil.copymode(self.path, self.draft)
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


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
