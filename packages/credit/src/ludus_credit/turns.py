"""The branch points of `ludus credit`: every turn of every completed rollout of a run.

A rollout is named by its receipt and the seed of its session, so its continuations are found again in later calls, and
not found if the verifier, the task or the response has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ludus.collection.branching import Branches, calls_before
from ludus.data.row_checks import parse_row
from ludus.data.row_environments import RowEnvironments
from ludus.data.rows import Survey
from ludus.environment import Environment
from ludus.errors import Failure, UserError
from ludus.store.model_calls import sizes_of
from ludus.store.receipts import Signer
from ludus.store.stored import StoredRow


class RecordedTurns(NamedTuple):
    """A recorded rollout to credit. Its turns are the model calls from `first` on: those before were given to it."""

    where: str
    line: bytes
    stored: StoredRow
    key: str
    first: int
    calls: int

    @property
    def turns(self) -> range:
        """The numbers of the turns, counted from 0."""
        return range(self.first, self.calls)

    def point(self, turn: int) -> str:
        """The id of the branch point before a turn."""
        return f"{self.key}.t{turn}"


class EveryTurn(Branches):
    """A branch point before every turn of the completed rollouts of a run.

    `counts` says what became of the rollouts of the last reading: `used`, `masked`, `failed`, `without_calls`.
    """

    def __init__(self, source: str | Path, environments: RowEnvironments, limit: int | None = None) -> None:
        super().__init__(source, 0, environments.task, limit)
        self.counts: Counter[str] = Counter()
        self._environments = environments
        self._signers: dict[str, Signer] = {}

    def rollouts(self) -> Iterator[RecordedTurns]:
        """The rollouts to credit."""
        self.counts = Counter()
        for where, line in self._recorded_lines():
            stored = StoredRow(parse_row(where, line), 0)
            if not stored.is_record:
                raise UserError(f"{where}: not a recorded rollout", "Name a collection: ludus credit runs/first")
            kind = _kind(stored)
            self.counts[kind] += 1
            if kind == "used":
                yield self._checked(where, line, stored)
                if self.counts["used"] == self._limit:
                    return
        if not self.counts["used"]:
            listed = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in self.counts.items())
            raise UserError(f"{self.source} holds no rollout to credit: {listed or 'it is empty'}")

    def environment_of(self, recorded: RecordedTurns) -> Environment:
        """The environment of a rollout."""
        return self._environments.of_row(recorded.stored.task)

    def survey(self, tick: Callable[[int], None] = lambda _: None) -> Survey:
        """Check every rollout. `in_shard` is the number of branch points."""
        survey = super().survey(tick)
        return Survey(survey.rows, survey.digest, sum(1 for _ in self._points()))

    def _own(self) -> Iterator[tuple[str, str, bytes, StoredRow, int]]:
        for recorded, turn in self._points():
            yield recorded.where, recorded.point(turn), recorded.line, recorded.stored, turn

    def _points(self) -> Iterator[tuple[RecordedTurns, int]]:
        """Every branch point once: rollouts with the same receipt and seed share theirs."""
        seen = set[str]()
        for recorded in self.rollouts():
            if recorded.key not in seen:
                seen.add(recorded.key)
                yield from ((recorded, turn) for turn in recorded.turns)

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        return ((recorded.where, recorded.line) for recorded in self.rollouts())

    def _checked(self, where: str, line: bytes, stored: StoredRow) -> RecordedTurns:
        """A rollout whose calls can be replayed and whose reward is what its verifier says today."""
        try:
            environment = self._environments.of_row(stored.task)
            calls: list[dict[str, Any]] = stored.row["model_calls"]
            for turn in range(len(calls)):
                calls_before(stored, turn)
            receipt = self._signer(environment).sign(stored.task, stored.response().output)
        except Failure as failure:
            raise UserError(f"{where}: {failure.cause}", "Name a collection: ludus credit runs/first") from failure
        if environment.resources.by_group:
            cause = f"{environment.name} judges the rollouts of a task together (verify_group)"
            raise UserError(cause, "A reward that depends on other rollouts cannot be divided among turns")
        if stored.row.get("receipt") != receipt:
            cause = f"{where}: its reward is stale: the verifier, the task or the response has changed since"
            raise UserError(cause, f"Score it again: ludus verify {self.source}")
        first = next(turn for turn, call in enumerate(calls) if not call.get("given"))
        return RecordedTurns(where, line, stored, f"{receipt}.{stored.seed:x}", first, len(calls))

    def _signer(self, environment: Environment) -> Signer:
        if environment.name not in self._signers:
            self._signers[environment.name] = Signer(environment)
        return self._signers[environment.name]


def _kind(stored: StoredRow) -> str:
    """Whether a rollout is `used`, or why not."""
    if stored.reward is None:
        return "failed"
    if stored.is_masked:
        return "masked"
    calls = stored.row.get("model_calls")
    has_own_calls = sizes_of(calls) is not None and not all(call.get("given") for call in calls or [])
    return "used" if has_own_calls else "without_calls"
