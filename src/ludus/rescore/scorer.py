"""Scoring the stored rows of one environment. If the verifier needs a session, the record is replayed in one."""

from __future__ import annotations

from pydantic import ValidationError

from ludus.agents.recorded import judge_again, judge_text
from ludus.collection.player import Player
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.record import Row
from ludus.response import Response
from ludus.runtime.boundary import Deadline
from ludus.store.stored import StoredRow, bad_row
from ludus.task import Task, private


class Scorer:
    """Scores rows of one environment."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.environment = environment = player.environment
        kind = environment.resources
        self.by_group = kind.by_group
        self.has_session = kind.has_session
        aliases = (field.alias or name for name, field in kind.Task.model_fields.items())
        forbids_extra = kind.Task.model_config.get("extra") == "forbid"
        self._allowed_fields = frozenset(kind.Task.model_fields).union(aliases) if forbids_extra else None
        self._last_row: Row = {}
        self._last_task: Task | None = None

    async def score(self, stored: StoredRow, response: Response, deadline: Deadline) -> tuple[Verdict, Row | None]:
        """The verdict on a response, and how its replay drifted from the record. Raises `Failure`."""
        environment, limits = self.environment, self.environment.limits
        session = environment.session(self.player.shared, stored.seed, seed_known=stored.known_seed is not None)
        if not self.has_session:
            return await judge_text(session, self.task(stored.task), response, limits, deadline), None
        job = stored.job(self.task(private(stored.task)), environment.name)  # a copy: the session may change it
        return await judge_again(job, session, response, limits, stored.row.get("model_calls"))

    def same_task(self, row: Row) -> Row:
        """The row of the last task if it equals this row, so that repeats share one parsed task.

        A verifier without a session that changes its task would see the change in the next repeat.
        """
        return self._last_row if row == self._last_row else row

    def task(self, row: Row) -> Task:
        """The task of a row. Raises `Failure` if the row is not a valid task of this environment."""
        if row is self._last_row and self._last_task is not None:
            return self._last_task
        given = row if self._allowed_fields is None else {key: row[key] for key in row if key in self._allowed_fields}
        try:
            task = self.environment.task(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise bad_row(f"{'.'.join(map(str, first['loc'])) or 'row'}: {first['msg']}") from None
        except Exception as error:
            raise Failure.of(error, "open") from error
        self._last_row, self._last_task = row, task
        return task
