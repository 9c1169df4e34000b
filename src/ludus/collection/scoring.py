"""One stored row in, its answer out: a reward, or a failure that says why there is none.

No model is asked; an environment with a judge asks its judge. Rows of several environments may be mixed, each named by
its `agent_ref`. A row cannot stop the others, whatever it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    """What became of a row. `fresh` is one whose receipt showed that there is nothing to do."""

    number: int
    name: str
    line: bytes
    before: float | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    drift: int = 0
    fresh: bool = False
    was_masked: bool = False


class Scorer:
    """Judges rows of one environment."""

    def __init__(self, environment: Environment, shared: Any) -> None:
        self.environment = environment
        self.signer = Signer(environment)
        self._shared = shared
        self.has_session = has_session(environment.resources)
        fields = environment.resources.Task.model_fields
        closed = environment.resources.Task.model_config.get("extra") == "forbid"
        aliases = {field.alias for field in fields.values() if field.alias}
        self._only = frozenset(fields) | aliases if closed else None

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

    def session(self, seed: int) -> Resources:
        """A fresh one."""
        try:
            resources = self.environment.resources(self.environment.config, self._shared)
        except Exception as error:
            raise Failure.of(error, "open") from error
        resources.seed = seed
        return resources

    async def verify(self, resources: Resources, task: Task, response: Response, deadline: Deadline) -> Verdict:
        """The verdict on a response that is judged by its text alone."""
        seconds = self.environment.limits.verify
        deadline.enter(seconds)
        try:
            return Verdict.of(await awaited(resources.verify, task, response))
        except asyncio.CancelledError:
            if deadline.took_back_cancel():
                raise Failure("timeout", f"no end after {seconds:g} s", stage="verify") from None
            raise
        except Exception as error:
            raise Failure.of(error, "verify") from error
        finally:
            deadline.leave()

    async def replay(self, resources: Resources, job: Job, response: Response) -> tuple[Verdict, Row | None]:
        """The verdict on a session, and how it differed from the recorded one."""
        rollout, drift = await replay(job, response, self.environment, resources)
        if rollout.verdict is None:
            raise rollout.error or Failure("crash", "no verdict", stage="verify")
        return rollout.verdict, drift


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
        self._naming = stored.Naming()

    async def use(self, which: Which) -> None:
        """Judge every row with this environment, whatever the rows say."""
        self._all = await self._open(Environment.load(which))

    async def answer(self, number: int, line: bytes, deadline: Deadline) -> Answer:
        """Answer one line of a file. Raises only what stops everything: a cancellation, or a mistake in the settings."""
        try:
            row = stored.parse(line)
        except Failure as failure:
            return Answer(number, f"line-{number}", stored.unreadable(failure, number), failure=failure)
        fields = stored.task_row(row)
        head = self._naming.head(row, fields)
        before = stored.stored_reward(row)
        answer = Answer(number, head["rollout_id"], line, before, was_masked=row.get("outcome") == "masked")
        scorer, receipt, drift = self._all, "", None
        try:
            if scorer is None:
                scorer = await self._named(row)
            response = stored.response_of(row)
            if self._sign:
                receipt = scorer.signer.sign(fields, response.output)
                if self._stale and before is not None and row.get("receipt") == receipt:
                    answer.fresh = True
                    return answer
            task, seed = scorer.task(fields), _seed(row, head)
            resources = scorer.session(seed)
            if not scorer.has_session:
                verdict = await scorer.verify(resources, task, response, deadline)
            else:
                job = Job(**head, task=task, row=fields, seed=seed, environment=scorer.environment.name)
                verdict, drift = await scorer.replay(resources, job, response)
        except Failure as failure:
            name = scorer.environment.name if scorer is not None else ""
            answer.failure, answer.line = failure, stored.failed(row, head, fields, name, failure, number)
            return answer
        answer.verdict, answer.drift = verdict, drift["count"] if drift else 0
        if self._sign and not stored.is_same(row, verdict, receipt, drift):
            answer.line = stored.scored(row, head, fields, scorer.environment.name, verdict, receipt, drift)
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
