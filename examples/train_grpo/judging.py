"""Win rates of one policy against another by an environment's verifier, and whether length explains them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from plotting import mean_interval

from ludus.store.statistics import ClusteredMean

Row = dict[str, Any]

#: Two answers are of equal length if the longer has at most this many times the characters of the shorter.
EQUAL = 1.1


@dataclass(frozen=True)
class Answer:
    """An answer to a held-out task and the judge's reward."""

    task_id: str
    asked: str
    text: str
    reward: float


def answers_of(rollouts: list[Any]) -> list[Answer]:
    """The answers that the judge could score."""
    return [
        Answer(rollout.task_id, rollout.task.input[-1]["content"], rollout.response.output_text, rollout.verdict.reward)
        for rollout in rollouts
        if rollout.verdict is not None and rollout.response is not None
    ]


def win_rates(start: list[Answer], end: list[Answer]) -> Row:
    """Every answer of `end` against every answer of `start` to the same task. A tie is half a win.

    Win rates are given for all pairs and by length: where the new answer is longer, of equal length, or shorter. A
    policy that wins only where it is longer has learnt length. Intervals count a task as one observation.
    """
    before: dict[str, list[Answer]] = defaultdict(list)
    for answer in start:
        before[answer.task_id].append(answer)
    wins: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer in end:
        for other in before[answer.task_id]:
            won = 0.5 if answer.reward == other.reward else float(answer.reward > other.reward)
            for kind in ("all", _compared(answer, other)):
                wins[kind][answer.task_id].append(won)
    rates: Row = {kind: _rate(list(wins[kind].values())) for kind in ("all", "longer", "equal", "shorter")}
    return rates | {"length": {"start": _lengths(start), "end": _lengths(end)}}


def _compared(answer: Answer, other: Answer) -> str:
    new, old = len(answer.text), len(other.text)
    if max(new, old) <= EQUAL * min(new, old):
        return "equal"
    return "longer" if new > old else "shorter"


def _rate(tasks: list[list[float]]) -> Row:
    mean, counts = ClusteredMean(), Counter[float]()
    for outcomes in tasks:
        mean.add(len(outcomes), sum(outcomes))
        counts.update(outcomes)
    ends = {"wins": counts[1.0], "ties": counts[0.5], "losses": counts[0.0]}
    return {"win_rate": mean.mean, "interval": mean.interval((0.0, 1.0)), "tasks": mean.clusters, **ends}


def _lengths(answers: list[Answer]) -> Row:
    """Mean characters, and the judge's mean reward with its interval."""
    characters = sum(len(answer.text) for answer in answers) / max(1, len(answers))
    rewards: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        rewards[answer.task_id].append(answer.reward)
    mean, interval = mean_interval([sum(values) / len(values) for values in rewards.values()], bounded=True)
    return {"answers": len(answers), "characters": characters, "judge": mean, "judge_interval": interval}
