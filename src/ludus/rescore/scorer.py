"""Scoring the stored rows of one environment. If the verifier needs a session, the record is replayed in one."""

from __future__ import annotations

from pydantic import ValidationError

from ludus.agents.recorded import judge_again, judge_text
from ludus.collection.player import Player
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.record import Row
from ludus.response import Response
from ludus.runtime.deadline import Deadline
from ludus.store.parsing import bad_row
from ludus.store.receipts import sign_output
from ludus.store.stored import StoredRow
from ludus.task import Task, private

#: How many tasks are kept for their next repeats. The repeats of a task stand near each other in a file.
RECENT_TASKS = 64


class KnownTask:
    """The task of one or more rows: its row, the part of the receipt that all its responses share, and the checked
    task, once it is needed.

    A verifier without a session that changes its task would see the change in the next repeat.
    """

    __slots__ = ("prefix", "row", "task")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.prefix = ""
        self.task: Task | None = None


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
        self._recent: dict[str, KnownTask] = {}  # by the task's id

    async def score(
        self, stored: StoredRow, known: KnownTask, response: Response, deadline: Deadline
    ) -> tuple[Verdict, Row | None]:
        """The verdict on a response, and how its replay drifted from the record. Raises `Failure`."""
        environment, calls = self.environment, stored.row.get("model_calls")
        session = environment.session(self.player.shared, stored.seed, seed_known=stored.known_seed is not None)
        if not self.has_session:
            if known.task is None:
                known.task = self.task(known.row)
            return await judge_text(session, known.task, response, environment.limits, deadline), None
        job = stored.job(self.task(private(stored.task)), environment.name)  # a copy: the session may change it
        return await judge_again(job, session, response, environment.limits_for(job.task), calls)

    def known(self, row: Row) -> KnownTask:
        """The task of a row. Rows that are equal share it, if not too many others stand between them."""
        name, recent = row.get("task_id"), self._recent
        key = name if isinstance(name, str) else ""
        task = recent.get(key)
        if task is None or task.row != row:
            if len(recent) >= RECENT_TASKS:
                del recent[next(iter(recent))]
            task = recent[key] = KnownTask(row)
        return task

    def receipt(self, known: KnownTask, response: Response) -> str:
        """The receipt for a response to a task."""
        if not known.prefix:
            known.prefix = self.player.signer.prefix(known.row)
        return sign_output(known.prefix, response.output)

    def task(self, row: Row) -> Task:
        """The task of a row. Raises `Failure` if the row is not a valid task of this environment."""
        fields = row if self._allowed_fields is None else {key: row[key] for key in row if key in self._allowed_fields}
        try:
            return self.environment.task(fields)
        except ValidationError as error:
            first = error.errors()[0]
            raise bad_row(f"{'.'.join(map(str, first['loc'])) or 'row'}: {first['msg']}") from None
        except Exception as error:
            raise Failure.of(error, "open") from error
