"""Checks that every verifier must pass, whatever it rewards.

It judges every answer, is deterministic, isolates rollouts from each other, and has no side effects. Two verdicts are
the same if the values that training uses are: reward, components, turn rewards and mask.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from ludus.environment import Environment
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response
from ludus.rollout import Rollout
from ludus.runtime.boundary import attribute
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited
from ludus_qualify.attempts import Attempt

Status = Literal["ok", "failed", "look", "skipped"]
Played = dict[str, Rollout]

#: The value of a verdict that lists the side effects of verifying twice.
SIDE_EFFECTS = "qualify_side_effects"


@dataclass(frozen=True)
class Check:
    """The result of one check, with the reason if it is not ok.

    `look` is a finding that a person must judge. `claim` is what a skipped check would have tested, or the finding.
    """

    name: str
    status: Status
    reason: str = ""
    claim: str = ""


def verifying_twice(environment: Environment) -> Environment:
    """The environment, with sessions that verify twice and list the side effects in the verdict."""
    base = environment.resources

    async def verify(self: Resources, task: Any, response: Response) -> Verdict:
        before = encode(response.data)
        first = Verdict.of(await awaited(base.verify, self, task, response), base.verify)
        side_effects = []
        try:
            second = first
            if not base.verifies_once:
                second = Verdict.of(await awaited(base.verify, self, task, response), base.verify)
            if _training_values(first) != _training_values(second):
                side_effects.append(f"verify gave {first.reward:g} and then {second.reward:g}")
        except BaseException as error:
            cause = attribute(error, "verify").cause
            side_effects.append(f"verify gave {first.reward:g} and then failed with {cause}")
        if encode(response.data) != before:
            side_effects.append("verify changed the response")
        first.values = {**first.values, SIDE_EFFECTS: side_effects}
        return first

    twice: type[Resources] = type(base.__name__, (base,), {"verify": verify, "__module__": base.__module__})
    return replace(environment, resources=twice)


def every_answer_judged(name: str, attempts: list[Attempt], played: Played) -> Check:
    """The verifier crashes for no answer: a rollout without a verdict is lost for training."""
    errors = [(attempt.name, error) for attempt in attempts if (error := played[attempt.id].error) is not None]
    if not errors:
        return Check(name, "ok")
    first, error = errors[0]
    return Check(name, "failed", f"{len(errors)} of {len(attempts)} failed, first {first}: {error}")


def deterministic(attempts: list[Attempt], first: Played, again: Played) -> Check:
    """The same responses with the same seeds get the same verdicts."""
    return _same_verdicts("deterministic", "determinism", attempts, first, again, "played again")


def isolated(attempts: list[Attempt], first: Played, interleaved: Played) -> Check:
    """A rollout gets the same verdict alone and among concurrent rollouts."""
    return _same_verdicts("isolated", "isolation of rollouts", attempts, first, interleaved, "played among others")


def without_side_effects(environment: Environment, attempts: list[Attempt], twice: Played) -> Check:
    """Verifying changes neither the session's next verdict nor the response. The rollout does not change the task."""
    name = "no side effects"
    for attempt in attempts:
        rollout = twice[attempt.id]
        if rollout.job.row != attempt.row or rollout.task != environment.task(attempt.row):
            return Check(name, "failed", f"{attempt.name}: the task was changed")
        side_effects = rollout.verdict.values.get(SIDE_EFFECTS) if rollout.verdict is not None else None
        if side_effects:
            return Check(name, "failed", f"{attempt.name}: {side_effects[0]}")
    return _ok_if_judged(name, twice, "side effects of verify")


def _ok_if_judged(name: str, played: Played, claim: str) -> Check:
    """A check without findings: ok, or skipped if no answer was judged."""
    if any(rollout.verdict is not None for rollout in played.values()):
        return Check(name, "ok")
    return Check(name, "skipped", "no answer was judged", claim)


def _same_verdicts(name: str, claim: str, attempts: list[Attempt], first: Played, second: Played, how: str) -> Check:
    changed = [attempt for attempt in attempts if _result(first[attempt.id]) != _result(second[attempt.id])]
    if not changed:
        return _ok_if_judged(name, first, claim)
    worst, _ = Counter(attempt.name for attempt in changed).most_common(1)[0]
    example = next(attempt for attempt in changed if attempt.name == worst)
    results = f"{_result_text(first[example.id])}, then {_result_text(second[example.id])}"
    return Check(
        name, "failed", f"{len(changed)} of {len(attempts)} verdicts differ when {how}; {example.name}: {results}"
    )


def _training_values(verdict: Verdict) -> tuple[Any, ...]:
    return verdict.reward, verdict.components, verdict.turn_rewards, verdict.mask


def _result(rollout: Rollout) -> tuple[Any, ...]:
    if rollout.verdict is not None:
        return _training_values(rollout.verdict)
    return ("failed", rollout.error.stage, rollout.error.kind) if rollout.error is not None else ()


def _result_text(rollout: Rollout) -> str:
    return f"{rollout.reward:g}" if rollout.reward is not None else str(rollout.error)
