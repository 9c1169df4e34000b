"""One stored row in, its answer out: a reward, or a failure that says why there is none.

No model is asked; an environment with a judge asks its judge. Rows of several environments may be mixed, each named by
its `agent_ref`. A row cannot stop the others, whatever it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ludus.collection import stored
from ludus.collection.replay import has_session, replay
from ludus.collection.stored import bad_row
from ludus.deadline import Deadline
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.outcome import Failure, Verdict
from ludus.receipt import Row, Signer
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Job
from ludus.task import Task, derive_seed
from ludus.threads import awaited

Which = str | Path | type[Resources] | Environment


@dataclass(slots=True)
class Answer:
    """What became of a row: a verdict, a failure, or neither where its receipt showed that there is nothing to do."""

    number: int
    name: str
    line: bytes
    before: float | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    drift: int = 0
    was_masked: bool = False


class Scorer:
    """Judges rows of one environment."""

    def __init__(self, environment: Environment, shared: Any) -> None:
        kind = environment.resources
        self.environment = environment
        self.signer = Signer(environment)
        self.has_session = has_session(kind)
        self._shared = shared
        self._is_async = inspect.iscoroutinefunction(kind.verify)
        aliases = (field.alias or name for name, field in kind.Task.model_fields.items())
        forbids = kind.Task.model_config.get("extra") == "forbid"
        self._only = frozenset(kind.Task.model_fields).union(aliases) if forbids else None

    async def score(
        self, task: Task, response: Response, job: Job, deadline: Deadline
    ) -> tuple[Verdict, dict[str, Any] | None]:
        """The verdict on a response, and how its session differed from the recorded one. Raises a `Failure`."""
        environment = self.environment
        try:
            resources = environment.resources(environment.config, self._shared)
        except Exception as error:
            raise Failure.of(error, "open") from error
        resources.seed = job.seed
        if not self.has_session:
            return await self._verify(resources, task, response, deadline), None
        rollout, drift = await replay(job, response, environment, resources)
        if rollout.verdict is None:
            raise rollout.error or Failure("crash", "no verdict", stage="verify")
        return rollout.verdict, drift

    def task(self, fields: Row) -> Task:
        """The task of a row, checked."""
        given = fields if self._only is None else {key: fields[key] for key in fields if key in self._only}
        try:
            return self.environment.task(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise bad_row(f"{'.'.join(map(str, first['loc'])) or 'row'}: {first['msg']}") from None
        except Exception as error:
            raise Failure.of(error, "open") from error

    async def _verify(self, resources: Resources, task: Task, response: Response, deadline: Deadline) -> Verdict:
        seconds = self.environment.limits.verify
        deadline.enter(seconds)
        try:
            if self._is_async:
                return Verdict.of(await resources.verify(task, response))
            return Verdict.of(await awaited(resources.verify, task, response))
        except asyncio.CancelledError:
            if deadline.took_back_cancel():
                raise Failure("timeout", f"no end after {seconds:g} s", stage="verify") from None
            raise
        except Exception as error:
            raise Failure.of(error, "verify") from error
        finally:
            deadline.leave()


class Scorers:
    """Answers rows of any environment. With `sign`, an answer is a line to be written; with `stale`, a row whose
    receipt is still good is left alone."""

    def __init__(
        self, stack: contextlib.AsyncExitStack, settings: dict[str, Any], *, sign: bool = True, stale: bool = False
    ) -> None:
        self._stack, self._settings = stack, settings
        self._sign, self._stale = sign or stale, stale
        self._all: Scorer | None = None
        self._known: dict[str, Scorer | Failure] = {}
        self._lock = asyncio.Lock()

    async def use(self, which: Which) -> None:
        """Judge every row with this environment, whatever the rows say."""
        self._all = await self._open(Environment.load(which))

    @property
    def has_sessions(self) -> bool:
        """Whether any row so far was more than its text."""
        return any(isinstance(each, Scorer) and each.has_session for each in (self._all, *self._known.values()))

    async def answer(self, number: int, line: bytes, deadline: Deadline) -> Answer:
        """Answer one line of a file. Raises only what stops everything: a cancellation, or a mistake in the settings."""
        try:
            row = stored.parse(line)
        except Failure as failure:
            return Answer(number, line=stored.unreadable(failure, number), failure=failure)
        answer = Answer(number, row, stored.content_of(row), line, stored.stored_reward(row))
        try:
            await self._score(answer, deadline)
        except Failure as failure:
            answer.failure = failure
            answer.line = stored.failed(row, answer.task, failure, number)
        return answer

    async def _score(self, answer: Answer, deadline: Deadline) -> None:
        row, fields = answer.row, answer.task
        scorer, receipt = self._all or await self._named(row), ""
        response = stored.response_of(row)
        if self._sign:
            receipt = scorer.signer.sign(fields, response.output)
            if self._stale and answer.before is not None and row.get("receipt") == receipt:
                return
        stored.add_names(row, fields)
        task = scorer.task(fields)
        resources = scorer.session()
        if not scorer.has_session:
            seed = row.get("rollout_seed")
            verdict, drift = await scorer.verify(resources, task, response, deadline), None
        else:
            job = Job(**head, task=task, row=fields, seed=_seed(row, head), environment=scorer.environment.name)
            verdict, drift = await scorer.score(task, response, job, deadline)
        answer.verdict = verdict
        answer.drift = drift["count"] if drift else 0
        if self._sign and not stored.is_same(row, verdict, receipt, drift):
            answer.line = stored.scored(row, head, fields, scorer.environment.name, verdict, receipt, drift)

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
        if isinstance(known, Failure):
            raise known
        return known

    async def _load(self, name: str) -> Scorer | Failure:
        if not name or name.startswith(".") or "/" in name or "\\" in name:  # a row must not say what code we run
            return bad_row(f"agent_ref: {name!r:.80} is not the name of an environment. Name one with --env ENV")
        try:
            environment = Environment.load(name.removesuffix("_simple_agent"))
        except UserError as error:
            return bad_row(f"agent_ref: {error}")
        return await self._open(environment)

    async def _open(self, environment: Environment) -> Scorer:
        environment.configure(self._settings)
        try:
            shared = await self._stack.enter_async_context(environment.resources.share(environment.config))
        except UserError:
            raise
        except Exception as error:
            cause = Failure.of(error, "open").cause
            raise UserError(f"environment {environment.name} cannot open what its rollouts share: {cause}") from error
        return Scorer(environment, shared)


def _seed(row: Row, head: Row) -> int:
    seed = row.get("rollout_seed")
    return seed if isinstance(seed, int) else derive_seed(0, head["task_id"], head["repeat"])
