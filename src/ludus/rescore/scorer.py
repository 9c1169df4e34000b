"""Judging the stored rows of one environment: each row is a job whose agent plays the record again."""

from __future__ import annotations

from pydantic import ValidationError

from ludus.agents.recorded import judge_again, judge_text
from ludus.collection.player import Player
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.record import Row
from ludus.response import Response
from ludus.runtime.boundary import Deadline
from ludus.store.stored import Stored, bad_row
from ludus.task import Task, private

#: The deadlines of one worker, by environment.
Deadlines = dict[str, Deadline]


class Scorer:
    """Judges rows of one environment. Without `sign` it writes no receipts."""

    def __init__(self, player: Player, *, sign: bool) -> None:
        self.player = player
        self.environment = environment = player.environment
        kind = environment.resources
        self.by_group = kind.by_group
        self.has_session = kind.has_session
        self.signs = sign
        aliases = (field.alias or name for name, field in kind.Task.model_fields.items())
        forbids = kind.Task.model_config.get("extra") == "forbid"
        self._only = frozenset(kind.Task.model_fields).union(aliases) if forbids else None
        self._row: Row = {}
        self._checked: Task | None = None

    async def score(self, stored: Stored, response: Response, deadlines: Deadlines) -> tuple[Verdict, Row | None]:
        """The verdict on a response, and how its session differed from the recorded one; or the failure."""
        environment, limits = self.environment, self.environment.limits
        session = environment.session(self.player.shared, stored.seed)
        if not self.has_session:
            deadline = deadlines.get(environment.name)
            if deadline is None:
                deadline = deadlines[environment.name] = limits.deadline()
            return await judge_text(session, self.task(stored.task), response, limits, deadline), None
        job = stored.job(self.task(private(stored.task)), environment.name)  # a session may change its task
        return await judge_again(job, session, response, limits, stored.row.get("model_calls"))

    def same_task(self, row: Row) -> Row:
        """The row of the last task if this is an equal one: repeats share their task, unless they have sessions.

        A verifier that changes the task it is given would see that: the price of not reading every row anew.
        """
        return self._row if row == self._row else row

    def task(self, row: Row) -> Task:
        """The task that a row holds; a failure where it is none of this environment's."""
        if row is self._row and self._checked is not None:
            return self._checked
        given = row if self._only is None else {key: row[key] for key in row if key in self._only}
        try:
            task = self.environment.task(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise bad_row(f"{'.'.join(map(str, first['loc'])) or 'row'}: {first['msg']}") from None
        except Exception as error:
            raise Failure.of(error, "open") from error
        self._row, self._checked = row, task
        return task
