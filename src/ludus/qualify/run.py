"""Qualification as one call: every attempt is played three times, and the card is what the passes say together.

Once one at a time, once more with every verdict reached twice, and once all together in another order. The first pass
gives the scores, the second is compared with it for determinism and side effects, the third for isolation.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

from ludus.collection.row_environments import Which
from ludus.collection.rows import Rows
from ludus.environment import Environment
from ludus.graders.judge import JudgeModelConfig
from ludus.qualify import card as cards
from ludus.qualify import checks
from ludus.qualify.attempts import Attempt, Kind, Row, Script, play
from ludus.qualify.card import Card, Thresholds
from ludus.qualify.oracle import Oracle
from ludus.qualify.policies import Seen, exploits
from ludus.qualify.rivals import among_rivals, rivals_check
from ludus.runtime.running import run_to_end
from ludus.task import Task

TOGETHER = 32


def qualify(
    which: Which,
    *,
    input: str | Path | list[Row] | None = None,
    limit: int | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    thresholds: Thresholds | None = None,
) -> Card:
    """Find out whether an environment's verifier can be trusted.

    card = qualify("mcqa", limit=5)
    card.passed, card.best_exploit
    """
    environment = Environment.load(which).copy()
    oracle = Oracle.of(environment)
    environment.configure({**oracle.settings, **(settings or {})})
    rows = Rows(input if input is not None else environment.dataset(), environment.task, limit)
    rows.survey()
    return run_to_end(_qualified(environment, oracle, rows, seed, thresholds or Thresholds()))


async def _qualified(environment: Environment, oracle: Oracle, rows: Rows, seed: int, thresholds: Thresholds) -> Card:
    given, environment = environment, among_rivals(environment, oracle)
    attempts, chances, choices = [], [], []
    for task_id, row, task in rows:
        attempts += attempts_at(task_id, row, task, oracle, seed)
        chances.append(oracle.chance(task))
        choices += [oracle.gold(task) or ""] if oracle.options(task) else []
    shuffled = random.Random(seed).sample(attempts, len(attempts))
    first = await play(environment, attempts, concurrency=1, seed=seed)
    twice = await play(checks.verifying_twice(environment), attempts, concurrency=1, seed=seed)
    together = await play(environment, shuffled, concurrency=TOGETHER, seed=seed)
    allowed = cards.exploit_limit(chances, choices, thresholds)
    card = Card(
        environment.name,
        rows=len(chances),
        attempts=len(attempts),
        chance=sum(chances) / len(chances),
        thresholds=thresholds,
        exploits=cards.exploits_of(attempts, first, allowed, oracle.expected),
        oracle=cards.oracle_score(attempts, first),
        false_positive=cards.wrong_rate(attempts, first, "breaking"),
        false_negative=cards.wrong_rate(attempts, first, "preserving"),
    )
    card.checks = [
        *cards.judged(card),
        checks.never_fails(attempts, first),
        checks.deterministic(attempts, first, twice),
        checks.isolated(attempts, first, together),
        checks.without_side_effects(environment, attempts, twice),
        *rivals_check(given, oracle),
        *_judge_check(environment),
    ]
    return card


def attempts_at(task_id: str, row: Row, task: Task, oracle: Oracle, seed: int) -> list[Attempt]:
    """Everything that is tried on one task."""

    def attempt(kind: Kind, name: str, script: Script, number: int = 0) -> Attempt:
        return Attempt(task_id, copy.deepcopy(row), kind, name, script, number)

    seen = Seen(task, oracle, random.Random(f"{seed}/{task_id}"))
    found = [attempt("exploit", name, script, number) for name, number, script in exploits(seen)]
    right = oracle.script(task)
    if right is not None:
        found.append(attempt("oracle", "oracle", right))
        found += [attempt("preserving", name, script) for name, script in oracle.preserving(task).items()]
        found += [attempt("breaking", name, script) for name, script in oracle.breaking(task).items()]
    return found


def _judge_check(environment: Environment) -> list[checks.Check]:
    """Say what a judge's part in the card is worth."""
    if not isinstance(environment.config, JudgeModelConfig):
        return []
    judge = environment.config.judge
    if judge is None:
        return [checks.Check("judge", "skipped", "none is set: --set resources.judge=SPEC")]
    return [checks.Check("judge", "ok", f"answers went to {judge}")]
