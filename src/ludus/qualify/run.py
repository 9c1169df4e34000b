"""Qualification as one call: every attempt is played in three passes, and the results make the card.

The first pass plays one attempt at a time and gives the rewards. The second does the same and verifies twice, to test
determinism and side effects. The third plays attempts concurrently in random order, to test isolation.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

from ludus.collection.row_environments import EnvironmentSpec
from ludus.collection.rows import Rows
from ludus.environment import Environment
from ludus.graders.judge import JudgeModelConfig
from ludus.qualify import card as cards
from ludus.qualify import checks
from ludus.qualify.attempts import Attempt, Kind, Row, Script, play
from ludus.qualify.card import Card, Thresholds
from ludus.qualify.oracle import Oracle
from ludus.qualify.policies import PolicyContext, exploits
from ludus.qualify.rivals import among_rivals, rivals_check
from ludus.runtime.running import run_to_end
from ludus.task import Task

CONCURRENCY = 32


def qualify(
    which: EnvironmentSpec,
    *,
    input: str | Path | list[Row] | None = None,
    limit: int | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    thresholds: Thresholds | None = None,
) -> Card:
    """Test whether an environment's verifier can be trusted.

    card = qualify("mcqa", limit=5)
    card.passed, card.best_exploit
    """
    environment = Environment.load(which).copy()
    oracle = Oracle.of(environment)
    environment.configure({**oracle.settings, **(settings or {})})
    rows = Rows(input if input is not None else environment.dataset(), environment.task, limit)
    rows.survey()
    return run_to_end(_make_card(environment, oracle, rows, seed, thresholds or Thresholds()))


async def _make_card(environment: Environment, oracle: Oracle, rows: Rows, seed: int, thresholds: Thresholds) -> Card:
    original, environment = environment, among_rivals(environment, oracle)
    attempts, chances, choices = [], [], []
    for task_id, row, task in rows:
        attempts += attempts_for(task_id, row, task, oracle, seed)
        chances.append(oracle.chance(task))
        choices += [oracle.gold(task) or ""] if oracle.options(task) else []
    shuffled = random.Random(seed).sample(attempts, len(attempts))
    first = await play(environment, attempts, concurrency=1, seed=seed)
    twice = await play(checks.verifying_twice(environment), attempts, concurrency=1, seed=seed)
    concurrent = await play(environment, shuffled, concurrency=CONCURRENCY, seed=seed)
    exploit_limit = cards.exploit_limit(chances, choices, thresholds)
    card = Card(
        environment.name,
        rows=len(chances),
        attempts=len(attempts),
        chance=sum(chances) / len(chances),
        thresholds=thresholds,
        exploits=cards.exploits_of(attempts, first, exploit_limit, oracle.expected),
        oracle=cards.oracle_score(attempts, first),
        false_positive=cards.wrong_rate(attempts, first, "breaking"),
        false_negative=cards.wrong_rate(attempts, first, "preserving"),
    )
    card.checks = [
        *cards.threshold_checks(card),
        checks.every_answer_judged(attempts, first),
        checks.deterministic(attempts, first, twice),
        checks.isolated(attempts, first, concurrent),
        checks.without_side_effects(environment, attempts, twice),
        *rivals_check(original, oracle),
        *_judge_check(environment),
    ]
    return card


def attempts_for(task_id: str, row: Row, task: Task, oracle: Oracle, seed: int) -> list[Attempt]:
    """All attempts at one task."""

    def attempt(kind: Kind, name: str, script: Script, number: int = 0) -> Attempt:
        return Attempt(task_id, copy.deepcopy(row), kind, name, script, number)

    context = PolicyContext(task, oracle, random.Random(f"{seed}/{task_id}"))
    found = [attempt("exploit", name, script, number) for name, number, script in exploits(context)]
    right = oracle.script(task)
    if right is not None:
        found.append(attempt("oracle", "oracle", right))
        found += [attempt("preserving", name, script) for name, script in oracle.preserving(task).items()]
        found += [attempt("breaking", name, script) for name, script in oracle.breaking(task).items()]
    return found


def _judge_check(environment: Environment) -> list[checks.Check]:
    """For environments with a judge: which judge gave the verdicts."""
    if not isinstance(environment.config, JudgeModelConfig):
        return []
    judge = environment.config.judge
    if judge is None:
        return [checks.Check("judge", "skipped", "no judge is set: --set resources.judge=SPEC")]
    return [checks.Check("judge", "ok", f"answers were judged by {judge}")]
