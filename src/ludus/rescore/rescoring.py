"""Scoring stored rollouts again: reads a file of rows and writes the rows with new rewards, in the same order.

A fixed number of workers reads the rows as a stream, so memory does not grow with the file. If verification only
computes and never waits, helper processes on the other cores score blocks of lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.collection.results import Run
from ludus.data.row_environments import EnvironmentSpec
from ludus.errors import UserError
from ludus.rescore.changes import Changes
from ludus.rescore.child import HelperSettings, close, prepare, score_block
from ludus.rescore.ordered import OrderedScoring, ScoredBlock, score_lines
from ludus.rescore.scoring import ScoredLine, Scorers
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.runtime.processes import ProcessPool, processors
from ludus.runtime.running import run_to_end
from ludus.runtime.threads import in_thread
from ludus.store.drafts import draft_path
from ludus.store.journal import Journal, open_locked
from ludus.store.lines import StoredLines
from ludus.store.stored_run import StoredRun

#: The output is flushed after this many bytes, or this many seconds.
FLUSH_BYTES = 256 << 10
FLUSH_SECONDS = 0.5

#: Helper processes score blocks of BLOCK_BYTES. They are started if at least MIN_BYTES_FOR_HELPERS are left to score.
BLOCK_BYTES = 1 << 20
MIN_BYTES_FOR_HELPERS = 16 << 20
MAX_HELPERS = 7
BLOCK_TIMEOUT = 3600.0

#: After this many seconds of scoring, a row that is still in flight shows that verification waits for something.
HELPER_DELAY = 0.02


class Rescoring:
    """Scores the rows of one file. `changes` holds the totals so far."""

    def __init__(
        self,
        source: str | Path,
        environment: EnvironmentSpec | Sequence[EnvironmentSpec] | None = None,
        *,
        output: str | Path | None = None,
        settings: dict[str, Any] | None = None,
        stale: bool = False,
        force: bool = False,
        only: bool = False,
        rows: str | Path | None = None,
        concurrency: int = 64,
    ) -> None:
        run = StoredRun.opened(source)
        self.path = run.files.rollouts
        self.output = Path(output) if output is not None else None
        if rows is not None and self.output is not None and self.output.resolve() == Path(rows).resolve():
            raise UserError(f"{rows} is the dataset and would be overwritten", "Choose another --output")
        if isinstance(environment, (list, tuple)) and len(environment) < 2:
            environment = environment[0] if environment else None
        if force and isinstance(environment, (list, tuple)):
            raise UserError(f"--force needs a single --env, and {len(environment)} are given", "Leave out --force")
        self.changes = Changes()
        self.source: StoredLines | None = None
        self.started = self.last_change = time.perf_counter()
        self._environment, self._settings = environment, settings or {}
        self._options: dict[str, Any] = {"sign": output is not None, "stale": stale, "force": force, "only": only}
        self._options["rows"] = Path(rows) if rows is not None else None
        self._options["recorded_in"] = run.environments
        self._options["given_file"] = str(source)
        self._concurrency = concurrency
        self._helpers = 0
        self.writer: OutputFile | None = None
        self.metrics: Path | None = None  # the metrics.json that was written anew

    async def run(self) -> None:
        """Score every row. The output holds only whole lines, even after an error or a cancel."""
        async with contextlib.AsyncExitStack() as stack:
            if self.output is not None:  # before reading, because it locks the output, which may be the input
                self.writer = stack.enter_context(OutputFile(self.output))
            self.source = stack.enter_context(StoredLines(self.path))
            scorers = Scorers(stack, self._settings, **self._options, file=self.path)
            if self._environment is not None:
                await scorers.set_environment(self._environment)
            with fewer_garbage_collections():
                await self._score(OrderedScoring(self.source, scorers, self._record), scorers)
            self.changes.torn = int(self.source.torn > 0)
            if not self.changes.rows:
                raise UserError(f"{self.path} holds no rows", "Name a run, or a file of rollouts")
            if self.writer is not None:
                self.writer.finish()
        if self.writer is not None:
            self.metrics = await in_thread(Run(self.writer.path).update_metrics)

    async def _score(self, scoring: OrderedScoring, scorers: Scorers) -> None:
        flushing = asyncio.create_task(self._flush_regularly())
        helping = asyncio.create_task(self._run_helpers(scoring, scorers))
        working = asyncio.create_task(scoring.run(self._concurrency))
        try:
            await asyncio.wait({working, helping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():  # an error of the helpers ends the run: the workers would wait for their results
                await helping
            await working
            if self._helpers or helping.done():  # do not wait for helpers that are still starting
                await helping
        finally:
            for task in (flushing, helping, working):
                task.cancel()
            await asyncio.gather(flushing, helping, working, return_exceptions=True)

    def _record(self, result: ScoredLine | ScoredBlock) -> None:
        failure = result.failure if isinstance(result, ScoredLine) else None
        if failure is not None and failure.kind == "no_judge" and not self.changes.scored:
            raise UserError(failure.cause)
        if self.writer is not None:
            self.writer.add(result.output)
        if isinstance(result, ScoredBlock):
            self.changes.merge(result.changes)
        else:
            self.changes.add(result)

    async def _flush_regularly(self) -> None:
        rows = 0
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            if self.writer is not None:
                self.writer.flush()
            if self.changes.rows != rows:
                rows, self.last_change = self.changes.rows, time.perf_counter()

    async def _run_helpers(self, scoring: OrderedScoring, scorers: Scorers) -> None:
        """Score blocks of lines in helper processes, if rows are independent and enough lines are left."""
        await asyncio.sleep(HELPER_DELAY)
        environment = self._environment
        several = environment if isinstance(environment, (list, tuple)) else [environment]
        can_be_sent = all(spec is None or isinstance(spec, (str, Path)) for spec in several)
        one_process = self._concurrency == 1 or scoring.in_flight or not scorers.rows_are_independent
        count = min(processors() - 1, MAX_HELPERS)
        worth_it = self.source is not None and self.source.bytes_left >= MIN_BYTES_FOR_HELPERS
        if one_process or count < 1 or not can_be_sent or not worth_it:
            return
        paths = [str(spec) for spec in several if spec is not None]
        environment = paths if len(paths) > 1 else paths[0] if paths else None
        settings = pickle.dumps(HelperSettings(environment, self._settings, self._options))
        async with ProcessPool(count, memory=None) as pool:
            await asyncio.gather(*(self._run_helper(scoring, scorers, pool, settings) for _ in range(count)))
            closing = (pool.run(close, settings) for _ in range(count))
            await asyncio.gather(*closing, return_exceptions=True)

    async def _run_helper(self, scoring: OrderedScoring, scorers: Scorers, pool: ProcessPool, settings: bytes) -> None:
        try:
            await pool.run(prepare, settings)
            self._helpers += 1
        except Exception:  # the helper process failed to start: the workers here score all lines
            return
        works = True
        while works and (taken := await scoring.take_block(BLOCK_BYTES)) is not None:
            index, block = taken
            try:
                lines, changes = await pool.run(score_block, settings, self.path, block, timeout=BLOCK_TIMEOUT)
                scored = ScoredBlock(block.read(self.path) if lines is None else lines, changes)
            except Exception:  # the helper process failed: score its block here, and give it no more
                works = False
                with StoredLines(self.path, block) as source:
                    scored = await score_lines(source, scorers, self._concurrency)
            scoring.add_result(index, scored)


class OutputFile:
    """Writes the scored rows, only whole lines. A new file grows while rows are scored. An existing file, which may be
    the input, is locked, and replaced by a draft file when all rows are scored. A `UserError` leaves no draft."""

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it is not a file", "Choose another --output")
        self.path = path = path.resolve()  # write to the target of a symbolic link
        self._lock = _lock(path)
        self.draft = draft_path(path) if self._lock is not None else path
        self._lines: list[bytes] = []
        self._size = 0
        self._journal = Journal(self.draft, "The input is unchanged: make room, then run it again")
        self._journal.clear()

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            refused = kind is not None and issubclass(kind, UserError)
            if not refused:
                self.flush()
            if refused or self._journal.empty:
                self.draft.unlink(missing_ok=True)
            self._journal.close()
        finally:
            if self._lock is not None:
                os.close(self._lock)

    def add(self, line: bytes) -> None:
        """Buffer one or more lines."""
        self._lines.append(line)
        self._size += len(line)
        if self._size >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines."""
        if self._lines:
            block, self._lines, self._size = b"".join(self._lines), [], 0
            self._journal.append(block[:-1])

    def finish(self) -> None:
        """All rows are added: replace the existing file, if any, with the draft."""
        self.flush()
        self._journal.close()
        if self.draft != self.path:
            shutil.copymode(self.path, self.draft)
            self.draft.replace(self.path)


def _lock(path: Path) -> int | None:
    """The open and locked file; None if there is none. A collection that writes the file has it locked."""
    try:
        return open_locked(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "Choose another --output") from error


def rescore(
    source: str | Path, environment: EnvironmentSpec | Sequence[EnvironmentSpec] | None = None, **options: Any
) -> Changes:
    """Score stored rollouts again, or any rows with a task's fields and a `response`.

        changes = rescore("runs/first", "mcqa", settings={"resources.grading_mode": "lenient_boxed"})
        changes.counts["changed"]

    Of several environments in a list, each row is scored in the one that its `agent_ref` names. Keyword arguments are
    those of `Rescoring`.
    """
    rescoring = Rescoring(source, environment, **options)
    run_to_end(rescoring.run())
    return rescoring.changes
