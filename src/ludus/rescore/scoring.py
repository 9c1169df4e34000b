"""One stored row in, its answer out: a reward, or a failure that says why there is none.

No model is asked; an environment with a judge asks its judge. Rows of several environments may be mixed, each named by
its `agent_ref`. A row cannot stop the others, whatever it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic import ValidationError

from ludus.agents.recorded import has_session, replay
from ludus.environment import Environment
from ludus.errors import INTERRUPTS, Failure, UserError
from ludus.outcome import Verdict
from ludus.record import Row
from ludus.rescore.groups import NeedsWholeFile, StoredGroups
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Job
from ludus.runtime.boundary import Deadline, is_cancelled
from ludus.runtime.threads import awaited
from ludus.store.receipts import Signer
from ludus.store.stored import Stored, bad_row, parse, unreadable
from ludus.task import Task, private

Which = str | Path | type[Resources] | Environment


class Answer:
    """What became of a line: a reward, a failure, or neither where its receipt showed that there is nothing to do.

    `line` is what to write. It keeps nothing of the row, since many answers may wait for their turn.
    """

    __slots__ = ("before", "drift", "failure", "line", "mask", "name", "number", "reward", "was_masked")

    def __init__(self, number: int, line: bytes) -> None:
        self.number = number
        self.line = line
        self.name = ""
        self.before: float | None = None
        self.reward: float | None = None
        self.mask: str | None = None
        self.was_masked = False
        self.failure: Failure | None = None
        self.drift = 0


class Scorer:
    """Judges rows of one environment."""

    def __init__(self, environment: Environment, shared: Any) -> None:
        kind = environment.resources
        self.environment = environment
        self.signer = Signer(environment)
        self.by_group = kind.by_group
        self.has_session = has_session(kind)
        self.shared = shared
        self._is_async = inspect.iscoroutinefunction(kind.verify)
        aliases = (field.alias or name for name, field in kind.Task.model_fields.items())
        forbids = kind.Task.model_config.get("extra") == "forbid"
        self._only = frozenset(kind.Task.model_fields).union(aliases) if forbids else None
        self._row: Row = {}
        self._checked: Task | None = None

    async def score(self, stored: Stored, response: Response, deadline: Deadline) -> tuple[Verdict, Row | None]:
        """The verdict on a response, and how its session differed from the recorded one; or what `verify` raises."""
        environment = self.environment
        task = self.task(private(stored.task) if self.has_session else stored.task)  # which a session may change
        try:
            resources = environment.resources(environment.config, self.shared)
        except INTERRUPTS:
            raise
        except BaseException as error:
            raise Failure.of(error, "open") from error
        resources.seed = stored.seed
        if self.has_session:
            return await self._replay(resources, task, stored, response)
        seconds = environment.limits.verify
        deadline.enter(perf_counter(), seconds)
        try:
            if self._is_async:
                return Verdict.of(await resources.verify(task, response)), None
            return Verdict.of(await awaited(resources.verify, task, response)), None
        except asyncio.CancelledError as error:
            if deadline.took_back_cancel():
                raise Failure("timeout", f"no end after {seconds:g} s", stage="verify") from None
            if is_cancelled():
                raise
            raise Failure.of(error, "verify") from error
        finally:
            if deadline.leave():  # it kept the cancellation to itself, and went on
                raise Failure("timeout", f"no end after {seconds:g} s", stage="verify")

    async def _replay(
        self, resources: Resources, task: Task, stored: Stored, response: Response
    ) -> tuple[Verdict, Row | None]:
        names = stored.head
        job = Job(**names, task=task, row=stored.task, seed=resources.seed, environment=self.environment.name)
        rollout, drift = await replay(job, response, self.environment, resources, stored.row.get("model_calls"))
        if rollout.verdict is None:
            raise rollout.error or Failure("crash", "no verdict", stage="verify")
        return rollout.verdict, drift

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


class Scorers:
    """Answers rows of any environment. With `sign`, an answer is a line to be written; with `stale`, a row whose
    receipt is still good is left alone. Rows of `whole` that are judged together find each other in that file."""

    def __init__(
        self,
        stack: contextlib.AsyncExitStack,
        settings: dict[str, Any],
        *,
        sign: bool = True,
        stale: bool = False,
        whole: Path | None = None,
    ) -> None:
        self._stack, self._settings = stack, settings
        self._groups = StoredGroups(whole, stale=stale)
        self._sign, self._stale = sign or stale, stale
        self._all: Scorer | None = None
        self._known: dict[str, Scorer | str] = {}
        self._lock = asyncio.Lock()

    async def use(self, which: Which) -> None:
        """Judge every row with this environment, whatever the rows say."""
        self._all = await self._open(Environment.load(which))
        self._groups.named = True

    @property
    def stand_alone(self) -> bool:
        """Whether every row so far was no more than its text, and judged for itself."""
        scorers = [each for each in (self._all, *self._known.values()) if isinstance(each, Scorer)]
        return not any(each.has_session or each.by_group for each in scorers)

    async def answer(self, number: int, line: bytes, deadline: Deadline) -> Answer:
        """Answer one line of a file. Raises only what stops everything: a cancellation, a mistake in the settings."""
        answer, scorer = Answer(number, line), self._all
        try:
            stored = Stored(parse(line), number)
        except Failure as failure:
            answer.failure, answer.line = failure, unreadable(failure, number, line)
            return answer
        answer.name, answer.before, answer.was_masked = stored.name, stored.reward, stored.is_masked
        try:
            if scorer is None:
                scorer = await self._named(stored.row)
            response, receipt, drift = stored.response(), "", None
            stored.task = scorer.same_task(stored.task)
            if scorer.by_group:
                found = await self._groups.verdict(scorer, stored)
                if found is None:
                    return answer
                verdict, receipt = found
            else:
                if self._sign:
                    receipt = scorer.signer.sign(stored.task, response.output)
                    if self._stale and answer.before is not None and stored.row.get("receipt") == receipt:
                        return answer
                verdict, drift = await scorer.score(stored, response, deadline)
            answer.reward, answer.mask, answer.drift = verdict.reward, verdict.mask, drift["count"] if drift else 0
            if self._sign:
                answer.line = stored.line(line, scorer.environment.name, verdict, receipt, drift)
        except (UserError, NeedsWholeFile):
            raise
        except INTERRUPTS:
            raise
        except BaseException as error:
            deep = isinstance(error, RecursionError)
            answer.failure = bad_row("it is nested too deeply") if deep else Failure.of(error, "verify")
            name = scorer.environment.name if scorer is not None else ""
            answer.line = stored.exact(line).failed(name, answer.failure)
        return answer

    async def _named(self, row: Row) -> Scorer:
        """The scorer of the environment that a row names."""
        reference = row.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        if not isinstance(name, str):
            raise bad_row("agent_ref: the row names no environment. Name one with --env ENV")
        known = self._known.get(name)
        if known is None:
            async with self._lock:
                known = self._known.get(name)
                if known is None:
                    known = self._known[name] = await self._load(name)
        if isinstance(known, str):
            raise bad_row(f"agent_ref: {known}")
        return known

    async def _load(self, name: str) -> Scorer | str:
        """The scorer of an environment, or why there is none."""
        try:
            environment = Environment.named(name)
        except UserError as error:
            return str(error)
        return await self._open(environment)

    async def _open(self, environment: Environment) -> Scorer:
        environment.configure(self._settings)
        try:
            shared = await self._stack.enter_async_context(environment.resources.share(environment.config))
        except UserError:
            raise
        except INTERRUPTS:
            raise
        except BaseException as error:
            cause = Failure.of(error, "open").cause
            raise UserError(f"environment {environment.name} cannot open what its rollouts share: {cause}") from error
        return Scorer(environment, shared)
