"""Faults on purpose: `--chaos seed=7,model_500=5%,tool_hang=1%` breaks a collection, and checks that nothing is wrong.

The faults of a rollout are drawn from the seed, the rollout and the place, so the same run meets the same faults; a
resumed run meets others. A fault in the model, a tool or the verifier must fail its rollout. At the end every rollout
must have exactly one terminal record, and no rollout that met such a fault may have a reward.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any
from zlib import crc32

from ludus.agents.simulated_user import is_users
from ludus.environment import Environment
from ludus.errors import Failure, UserError, did_you_mean
from ludus.game import Game, Step
from ludus.model import Model, Request
from ludus.resources import Resources
from ludus.response import Response
from ludus.store.journal import Journal

_EXAMPLE = "Example: --chaos seed=7,model_500=5%,tool_hang=1%"


@dataclass
class Chaos:
    """How often each fault happens, from 0 to 1. `node_kill` is how many nodes of a cluster are killed.

    - `worker_kill`: for each rollout that a worker finishes, the worker is killed
    - `model_500`, `model_hang`, `model_abort`: for each model call, it fails, is never answered, or is cut off
    - `tool_hang`: for each tool call, it never returns. `judge_down`: for each verdict, the verifier fails
    - `disk_full`: for each write of a journal, there is no space left at the moment
    """

    seed: int = 0
    worker_kill: float = 0.0
    model_500: float = 0.0
    model_hang: float = 0.0
    model_abort: float = 0.0
    tool_hang: float = 0.0
    judge_down: float = 0.0
    disk_full: float = 0.0
    node_kill: int = 0
    round: int = 0  #: another number in each resumed run, so that a rollout does not meet the same fault for ever

    @classmethod
    def parse(cls, text: str) -> Chaos:
        """Read `seed=7,model_500=5%`. A rate is a percentage, or a number from 0 to 1."""
        known = [each.name for each in fields(cls) if each.name != "round"]
        given: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name not in known:
                raise UserError(f"--chaos has no fault {name!r:.40}", did_you_mean(name, known))
            given[name] = _number(name, value) if name in ("seed", "node_kill") else _rate(name, value)
            if not equals:
                raise UserError(f"--chaos: {name} has no value", _EXAMPLE)
        return cls(**given)

    def strikes(self, fault: str, *place: Any) -> bool:
        """Whether a fault happens at a place."""
        rate = getattr(self, fault)
        drawn = crc32("/".join(map(str, (self.seed, self.round, fault, *place))).encode())
        return bool(drawn / 2**32 < rate)


@dataclass
class Faults:
    """The faults that happened: how many of each, and the seeds of the rollouts that must not have a reward."""

    counts: Counter[str] = field(default_factory=Counter)
    struck: set[int] = field(default_factory=set)

    def note(self, fault: str, seed: int | None = None) -> None:
        """A fault happens; `seed` is that of the rollout it must fail."""
        self.counts[fault] += 1
        if seed is not None:
            self.struck.add(seed)

    def drain(self) -> list[Any]:
        """What a worker tells the collection, once."""
        found = [dict(self.counts), sorted(self.struck)]
        self.counts, self.struck = Counter(), set()
        return found

    def merge(self, drained: list[Any]) -> None:
        """Add what a worker told."""
        self.counts.update(drained[0])
        self.struck.update(drained[1])


class ChaosModel(Model):
    """A model whose calls fail now and then. The calls of a simulated user are left alone."""

    def __init__(self, model: Model, chaos: Chaos, faults: Faults) -> None:
        self._model, self._chaos, self._faults = model, chaos, faults
        self.name = model.name

    @property
    def policy_version(self) -> str | int | None:  # type: ignore[override]
        """The version of the model's weights."""
        return self._model.policy_version

    async def respond(self, request: Request) -> Response:
        """Answer one request, or fail."""
        chaos, place = self._chaos, (request.session, request.turn)
        if not is_users(request):
            if chaos.strikes("model_500", *place):
                self._faults.note("model_500", request.seed)
                raise Failure("http_500", "chaos: the model answered 500")
            if chaos.strikes("model_hang", *place):
                self._faults.note("model_hang", request.seed)
                await asyncio.Event().wait()
            if chaos.strikes("model_abort", *place):
                self._faults.note("model_abort", request.seed)
                return Response.of(model=self.name, status="incomplete", incomplete_details={"reason": "abort"})
        return await self._model.respond(request)

    def forget(self, session: str) -> None:
        """A rollout is over."""
        self._model.forget(session)


def faulty_environment(environment: Environment, chaos: Chaos, faults: Faults) -> Environment:
    """The environment with sessions whose tools hang and whose verifier fails now and then."""
    return replace(environment, resources=_faulty(environment.resources, chaos, faults))


def _faulty(kind: type[Resources], chaos: Chaos, faults: Faults) -> type[Resources]:
    async def maybe_hang(session: Any) -> None:
        session._chaos_calls = getattr(session, "_chaos_calls", 0) + 1
        if chaos.strikes("tool_hang", session._seed, session._chaos_calls):
            faults.note("tool_hang", session._seed)
            await asyncio.Event().wait()

    def maybe_fail(session: Any) -> None:
        if chaos.strikes("judge_down", session._seed):
            faults.note("judge_down", session._seed)
            raise Failure("judge", "chaos: the judge is down")

    async def call(self: Any, name: str, arguments: str) -> str:
        await maybe_hang(self)
        return await kind.call(self, name, arguments)

    async def advance(self: Any, task: Any, response: Response) -> Step:
        await maybe_hang(self)
        return await kind.advance(self, task, response)  # type: ignore[attr-defined, no-any-return]

    members: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if chaos.tool_hang:
        members |= {"advance": advance} if issubclass(kind, Game) else {"call": call} if kind.toolbox else {}
    if chaos.judge_down:
        name = "verify_group" if kind.by_group else "verify"
        members[name] = _failing(getattr(kind, name), maybe_fail)
    return type(kind.__name__, (kind,), members)


def _failing(verify: Any, maybe_fail: Any) -> Any:
    """A verifier that fails now and then: plain or `async`, as it was."""
    if inspect.iscoroutinefunction(verify):

        async def verify_later(self: Any, task: Any, given: Any) -> Any:
            maybe_fail(self)
            return await verify(self, task, given)

        return verify_later

    def verify_now(self: Any, task: Any, given: Any) -> Any:
        maybe_fail(self)
        return verify(self, task, given)

    return verify_now


def fill_disk(journal: Journal, chaos: Chaos, faults: Faults) -> None:
    """Make writes of a journal fail now and then, as on a full disk."""
    written = 0

    def before_write() -> None:
        nonlocal written
        written += 1
        if chaos.strikes("disk_full", journal.path.name, written):
            faults.note("disk_full")
            raise OSError(errno.ENOSPC, "No space left on device")

    journal.before_write = before_write


def check_records(
    expected: Iterable[str], rollouts: Iterable[dict[str, Any]], failures: Iterable[dict[str, Any]], faults: Faults
) -> list[str]:
    """What is wrong with the records of a run that met faults; nothing if every rollout ended once, and honestly."""
    wrong: list[str] = []
    scored, attempts = dict[str, int](), set[tuple[str, int]]()
    for row in rollouts:
        name = row["rollout_id"]
        if name in scored:
            wrong.append(f"{name} is recorded twice")
        scored[name] = row.get("attempt", 1)
        if row.get("rollout_seed") in faults.struck:
            wrong.append(f"{name} has a reward although it met a fault")
    for row in failures:
        name, attempt = row["rollout_id"], row.get("attempt", 1)
        if (name, attempt) in attempts or scored.get(name, attempt + 1) <= attempt:
            wrong.append(f"{name} is recorded twice")
        attempts.add((name, attempt))
        if row.get("reward") is not None:
            wrong.append(f"{name} failed and has a reward")
    ended = scored.keys() | {name for name, _ in attempts}
    wrong += [f"{name} has no record" for name in expected if name not in ended]
    return wrong


def _rate(name: str, text: str) -> float:
    try:
        rate = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UserError(f"--chaos: {name} must be a percentage, such as 5%, not {text!r:.40}", _EXAMPLE)
    return rate


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise UserError(f"--chaos: {name} must be a whole number, not {text!r:.40}", _EXAMPLE)
    return int(text)
