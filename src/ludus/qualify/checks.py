"""What must hold of any verifier, whatever it rewards: it ends, it repeats itself, it keeps to its own rollout, and it
changes nothing.

A verdict is compared by what training sees of it: reward, components, rewards of turns and the mask.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from ludus.environment import Environment
from ludus.outcome import Verdict
from ludus.qualify.attempts import Attempt
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Rollout
from ludus.runtime.boundary import attribute
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited

Status = Literal["ok", "failed", "skipped"]
Played = dict[str, Rollout]

#: Where a verdict carries what was noticed while it was reached a second time.
NOTICED = "qualify_noticed"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, how it went, and why if it did not go well."""

    name: str
    status: Status
    reason: str = ""


def verifying_twice(environment: Environment) -> Environment:
    """The environment with sessions that verify twice and note what the second time changed."""
    base = environment.resources

    async def verify(self: Resources, task: Any, response: Response) -> Verdict:
        before = encode(response.data)
        first = Verdict.of(await awaited(base.verify, self, task, response))
        noticed = []
        try:
            second = Verdict.of(await awaited(base.verify, self, task, response))
            if _essence(first) != _essence(second):
                noticed.append(f"verify gave {first.reward:g} and then {second.reward:g}")
        except BaseException as error:
            cause = attribute(error, "verify").cause
            noticed.append(f"verify gave {first.reward:g} and then failed with {cause}")
        if encode(response.data) != before:
            noticed.append("verify changed the response")
        first.values = {**first.values, NOTICED: noticed}
        return first

    twice: type[Resources] = type(base.__name__, (base,), {"verify": verify, "__module__": base.__module__})
    return replace(environment, resources=twice)


def never_fails(attempts: list[Attempt], played: Played) -> Check:
    """Whatever a model writes is judged: a verifier that raises loses the rollouts that most need a verdict."""
    failed = {attempt.name: error for attempt in attempts if (error := played[attempt.id].error) is not None}
    if not failed:
        return Check("every answer judged", "ok")
    count = sum(played[attempt.id].error is not None for attempt in attempts)
    name, error = next(iter(failed.items()))
    return Check("every answer judged", "failed", f"{count} of {len(attempts)} failed, first {name}: {error}")


def deterministic(attempts: list[Attempt], first: Played, again: Played) -> Check:
    """The same responses with the same seeds get the same verdicts."""
    return _compared("deterministic", attempts, first, again, "played again")


def isolated(attempts: list[Attempt], first: Played, interleaved: Played) -> Check:
    """A rollout gets the verdict among others that it gets alone."""
    return _compared("isolated", attempts, first, interleaved, "played among others")


def without_side_effects(environment: Environment, attempts: list[Attempt], twice: Played) -> Check:
    """Verifying changes neither the session's next verdict nor the response, and nothing changes the task."""
    name = "no side effects"
    for attempt in attempts:
        rollout = twice[attempt.id]
        if rollout.job.row != attempt.row or rollout.task != environment.task(attempt.row):
            return Check(name, "failed", f"{attempt.name}: the task was changed")
        noticed = rollout.verdict.values.get(NOTICED) if rollout.verdict is not None else None
        if noticed:
            return Check(name, "failed", f"{attempt.name}: {noticed[0]}")
    return Check(name, "ok")


def _compared(name: str, attempts: list[Attempt], first: Played, second: Played, how: str) -> Check:
    changed = [each for each in attempts if _end(first[each.id]) != _end(second[each.id])]
    if not changed:
        return Check(name, "ok")
    worst, _ = Counter(each.name for each in changed).most_common(1)[0]
    example = next(each for each in changed if each.name == worst)
    ends = f"{_said(first[example.id])}, then {_said(second[example.id])}"
    return Check(
        name, "failed", f"{len(changed)} of {len(attempts)} verdicts differ when {how}; {example.name}: {ends}"
    )


def _essence(verdict: Verdict) -> tuple[Any, ...]:
    return verdict.reward, verdict.components, verdict.turn_rewards, verdict.mask


def _end(rollout: Rollout) -> tuple[Any, ...]:
    if rollout.verdict is not None:
        return _essence(rollout.verdict)
    return ("failed", rollout.error.stage, rollout.error.kind) if rollout.error is not None else ()


def _said(rollout: Rollout) -> str:
    return f"{rollout.reward:g}" if rollout.reward is not None else str(rollout.error)
