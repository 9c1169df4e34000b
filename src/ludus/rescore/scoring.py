"""One stored row in, its answer out: a reward, or a failure that says why there is none.

No model is asked; an environment with a judge asks its judge. Rows of several environments may be mixed, each named by
its `agent_ref`. A row cannot stop the others, whatever it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from ludus.agents.recorded import NO_MODEL
from ludus.collection.player import Players
from ludus.environment import Environment
from ludus.errors import Failure, UserError
from ludus.record import Row
from ludus.rescore.groups import NeedsWholeFile, StoredGroups, failure_of
from ludus.rescore.scorer import Deadlines, Scorer
from ludus.resources import Resources
from ludus.store.stored import Stored, bad_row, parse, unreadable

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
        self._settings = settings
        self._players = Players(stack, NO_MODEL)
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

    async def answer(self, number: int, line: bytes, deadlines: Deadlines) -> Answer:
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
                    receipt = scorer.player.signer.sign(stored.task, response.output)
                    if self._stale and answer.before is not None and stored.row.get("receipt") == receipt:
                        return answer
                verdict, drift = await scorer.score(stored, response, deadlines)
            answer.reward, answer.mask, answer.drift = verdict.reward, verdict.mask, drift["count"] if drift else 0
            if self._sign:
                answer.line = stored.line(line, scorer.environment.name, verdict, receipt, drift)
        except (UserError, NeedsWholeFile):
            raise
        except BaseException as error:
            answer.failure = failure_of(error)
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
        return Scorer(await self._players.open(environment), sign=self._sign)
