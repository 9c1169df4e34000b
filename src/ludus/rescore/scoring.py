"""Scoring one stored line: the result is a reward, or a failure that says why there is none.

No policy model is called; a verifier with a judge model calls its judge. A file may mix environments: each row names
its environment in `agent_ref`. A bad row fails alone and does not stop the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ludus.agents.recorded import NO_MODEL
from ludus.collection.player import Players
from ludus.data.row_environments import EnvironmentSpec, RowEnvironments
from ludus.environment import Environment
from ludus.errors import Failure, UserError
from ludus.folder import environment_name, option_for
from ludus.record import Row
from ludus.rescore.groups import NeedsWholeFile, StoredGroups, row_failure
from ludus.rescore.scorer import Scorer
from ludus.rescore.task_rows import TaskRows
from ludus.runtime.deadline import Deadline
from ludus.store.parsing import bad_row, parse
from ludus.store.stored import StoredRow, unreadable_line


class ScoredLine:
    """The result for one line: a reward, a failure, or neither if its receipt is still valid.

    `output` is the line to write. The parsed row is not kept, because many results may wait to be written in order.
    """

    __slots__ = (
        "before",
        "drift",
        "duplicate",
        "failure",
        "mask",
        "name",
        "number",
        "other",
        "output",
        "pass_reward",
        "reward",
        "was_masked",
    )

    def __init__(self, number: int, line: bytes, *, duplicate: bool = False) -> None:
        self.number = number
        self.output = line
        self.duplicate = duplicate  # whether the line does not count
        self.name = ""
        self.before: float | None = None
        self.reward: float | None = None
        self.pass_reward = 1.0
        self.mask: str | None = None
        self.was_masked = False
        self.other = False  # whether the row belongs to another environment than the one that is scored
        self.failure: Failure | None = None
        self.drift = 0


class Scorers:
    """Scores lines of any environment. With `sign`, results have new lines and receipts. With `stale`, rows with a
    valid receipt are not scored. With `force`, rows that name another environment than the given one are scored too,
    as are all rows of a run whose only environment (`recorded_in`) is the given one: a dataset may name any agent. With
    `only`, rows that name another environment are left as they are.
    `file` is the whole file, where the other rows of a group are found; `given_file` is how the user named it. `rows`
    is the dataset to which all rows are joined by their prompts.

    A rollout that Ludus recorded has a reward to lose: if its environment cannot be loaded, the run stops."""

    def __init__(
        self,
        stack: contextlib.AsyncExitStack,
        settings: dict[str, Any],
        *,
        sign: bool = True,
        stale: bool = False,
        force: bool = False,
        only: bool = False,
        recorded_in: list[str] | None = None,
        given_file: str = "FILE",
        file: Path | None = None,
        rows: Path | None = None,
    ) -> None:
        self._settings = settings
        self._players = Players(stack, NO_MODEL)
        self._task_rows = TaskRows(rows) if rows is not None else None
        if self._task_rows is not None:
            stack.callback(self._task_rows.close)
        self._groups = StoredGroups(file, self._read_row, stale=stale)
        self._sign, self._stale, self._force, self._only = sign or stale, stale, force, only
        self._recorded_in, self._file_argument = recorded_in or [], given_file
        self._accepted_names: set[str] = set()  # in `agent_ref`, for the given environment
        self._for_all_rows: Scorer | None = None
        self._several: RowEnvironments | None = None  # several, from which a row chooses
        self._by_name: dict[str, Scorer | str] = {}  # a string is the reason why the environment cannot be loaded
        self._lock = asyncio.Lock()

    async def set_environment(self, environment: EnvironmentSpec | Sequence[EnvironmentSpec]) -> None:
        """Score every row in this environment, or in the one of several that it names. A row that names another one
        stops the run, unless forced."""
        if isinstance(environment, (list, tuple)):
            self._several = RowEnvironments(environment, self._settings)
            self._several.check_settings(self._several.named)
            return
        environment = cast("EnvironmentSpec", environment)
        self._for_all_rows = await self._open(Environment.load(environment))
        name = self._for_all_rows.environment.name
        self._accepted_names.add(name)
        if self._recorded_in == [name]:
            self._force = True
        self._groups.ignore_agent_ref = self._force or not self._only

    @property
    def rows_are_independent(self) -> bool:
        """Whether no row so far needed a session or a group."""
        scorers = [scorer for scorer in (self._for_all_rows, *self._by_name.values()) if isinstance(scorer, Scorer)]
        return not any(scorer.has_session or scorer.by_group for scorer in scorers)

    async def score_line(self, number: int, line: bytes, deadline: Deadline) -> ScoredLine:
        """Score one line of a file. Raises only errors that stop the run: a cancel, a wrong setting."""
        scored, scorer = ScoredLine(number, line), self._for_all_rows
        try:
            stored = StoredRow(parse(line), number)
        except Failure as failure:
            scored.failure, scored.output = failure, unreadable_line(failure, number, line)
            return scored
        scored.name, scored.before, scored.was_masked = stored.name, stored.reward, stored.is_masked
        if (unreadable := stored.unreadable) is not None:
            scored.failure = unreadable
            return scored
        try:
            if self._task_rows is not None:
                self._join(stored)
                scored.name = stored.name
            if scorer is None:
                scorer = await self._scorer_of(stored)
            elif not self._force and (other := self._other_environment(stored, scorer.environment.name)) is not None:
                if self._only:
                    scored.other = True
                    return scored
                raise _names_another(stored.number, other, scorer.environment.name)
            scored.pass_reward = scorer.environment.pass_reward
            response, receipt, drift = stored.response(), "", None
            if (reason := response.aborted) is not None:
                raise Failure(
                    "aborted", f"the recorded answer ended early, with the reason {reason!r:.80}", stage="model"
                )
            known = scorer.known(stored.task)
            stored.task = known.row
            if scorer.by_group:
                signed = await self._groups.verdict(scorer, stored)
                if signed is None:
                    return scored
                verdict, receipt = signed
            else:
                if self._sign:
                    receipt = scorer.receipt(known, response)
                    if self._stale and scored.before is not None and stored.row.get("receipt") == receipt:
                        return scored
                verdict, drift = await scorer.score(stored, known, response, deadline)
            verdict.mask = verdict.mask or response.unusable(stored.row.get("model_calls") or [])
            scored.reward, scored.mask, scored.drift = verdict.reward, verdict.mask, drift["count"] if drift else 0
            if self._sign:
                scored.output = stored.rescored_line(line, scorer.environment.name, verdict, receipt, drift)
        except (UserError, NeedsWholeFile):
            raise
        except BaseException as error:
            scored.failure = row_failure(error)
            name = scorer.environment.name if scorer is not None else ""
            scored.output = stored.with_exact_integers(line).failed_line(line, name, scored.failure)
        return scored

    def _read_row(self, line: bytes, number: int) -> StoredRow:
        """A row of a group, joined to the dataset. Raises `Failure`."""
        stored = StoredRow(parse(line), number)
        self._join(stored)
        return stored

    def _join(self, stored: StoredRow) -> None:
        if self._task_rows is not None:
            task = self._task_rows.join(stored.task)
            stored.joined, stored.task = task is not stored.task, task

    async def _scorer_of(self, stored: StoredRow) -> Scorer:
        """The scorer of the environment that a row names. Raises `Failure`, or a `UserError` that stops the run."""
        name = _agent_name(stored.task)
        if not name:
            if self._several is not None:
                raise UserError(f"line {stored.number} names no environment", "Score such rows with a single --env")
            raise bad_row("agent_ref: the row names no environment. Name one with --env ENV")
        scorer = self._by_name.get(name)
        if scorer is None:
            async with self._lock:
                scorer = self._by_name.get(name)
                if scorer is None:
                    scorer = self._by_name[name] = await self._load(name)
        if not isinstance(scorer, str):
            return scorer
        if self._several is not None:
            known = " or ".join(environment.name for environment in self._several.named)
            cause = f"line {stored.number} names the environment {name:.80}, not {known}"
            raise UserError(cause, f"Add --env {option_for(name)}")
        if stored.is_record and environment_name(name) is not None:  # its code or its settings have an error
            raise UserError(f"line {stored.number}: {scorer}")
        if stored.is_record:
            names = self._recorded_in if name in self._recorded_in else [name]
            options = " ".join(f"--env {option_for(environment)}" for environment in names)
            hint = f"Write: ludus verify {shlex.quote(self._file_argument)} {options}"
            raise UserError(f"line {stored.number}: unknown environment {name:.80}", hint)
        raise bad_row(f"agent_ref: {scorer}")

    def _other_environment(self, stored: StoredRow, expected: str) -> str | None:
        """The environment of a row that is not the given one. A name that no environment has may come from any tool."""
        named = _agent_name(stored.task)
        if not named or named in self._accepted_names:
            return None
        recorded_in = environment_name(named) or (named if stored.is_record else expected)
        if recorded_in != expected:
            return recorded_in
        self._accepted_names.add(named)
        return None

    async def _load(self, name: str) -> Scorer | str:
        """The scorer of an environment, or the reason why it cannot be loaded."""
        if self._several is not None:
            environment = self._several.find_named(name)
            if environment is None:
                return f"unknown environment {name:.80}"
            return Scorer(await self._players.open(environment))
        try:
            environment = Environment.named(name)
        except UserError as error:
            return str(error)
        return await self._open(environment)

    async def _open(self, environment: Environment) -> Scorer:
        environment.configure(self._settings)
        return Scorer(await self._players.open(environment))


def _names_another(number: int, other: str, expected: str) -> UserError:
    hint = f"Add --env {option_for(other)} for it, or --force to score it in {expected}"
    return UserError(f"line {number} names the environment {other:.80}, not {expected}", hint)


def _agent_name(row: Row) -> str | None:
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None
