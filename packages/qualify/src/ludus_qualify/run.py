"""Qualification as one call: it plays every attempt in three passes and fills in the card.

The first pass plays one attempt at a time and gives the rewards. The second does the same and verifies twice, to test
determinism and side effects. The third plays attempts concurrently in random order, to test isolation.

Programs that attack the grader play only in the third pass: some of them run into the timeout, and that pass shows what
they do to other rollouts. Odd answers (`odd_answers.py`) play in a pass of their own: all that counts is that each of
them gets a verdict. So do near misses (`near_misses.py`), after which the state of the session is compared.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ludus.collection.forgotten_tools import forgotten_tools
from ludus.collection.reward_ranges import outside_of_range
from ludus.data.row_environments import EnvironmentSpec
from ludus.data.rows import Rows
from ludus.dataset import Generated
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.graders.judge import JudgeModelConfig
from ludus.rollout import Rollout
from ludus.runtime.processes import shared_pool
from ludus.runtime.running import run_to_end
from ludus.task import Task
from ludus_qualify import card as cards
from ludus_qualify import checks
from ludus_qualify.attempts import Attempt, Kind, Row, Script, play
from ludus_qualify.card import Card
from ludus_qualify.near_misses import play_near_misses
from ludus_qualify.odd_answers import ANSWERS, odd_answers
from ludus_qualify.oracle import Oracle
from ludus_qualify.policies import PolicyContext, common_options, exploits
from ludus_qualify.rates import CHEAT, Thresholds, cheat_rate, odd_rate, oracle_rate, wrong_rate
from ludus_qualify.rivals import among_rivals, rivals_check

CONCURRENCY = 32

#: The default `limit` for a generated dataset, which may be endless.
GENERATED_ROWS = 32


def qualify(
    which: EnvironmentSpec,
    *,
    input: str | Path | list[Row] | None = None,
    dataset: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    thresholds: Thresholds | None = None,
    odd: int = ANSWERS,
    hooks: Path | None = None,
) -> Card:
    """Test whether an environment's verifier can be trusted. `hooks` is a file in place of its `qualify.py`.

    card = qualify("mcqa", limit=5)
    card.verdict, card.not_shown, card.best_exploit
    """
    if input is not None and dataset is not None:
        raise UserError("both --input and --dataset are given", "Leave one of them out")
    environment = Environment.load(which).copy()
    oracle = Oracle.of(environment, hooks)
    environment.configure({**oracle.settings, **(settings or {})})
    source = input if input is not None else environment.rows(dataset)
    if limit is None and isinstance(source, Generated) and not source.ends:
        limit = GENERATED_ROWS
    rows = Rows(source, environment.task, limit, seed, environment.with_prompt)
    rows.survey()
    thresholds = thresholds or Thresholds()
    if thresholds.pass_reward is None and environment.pass_reward != 1.0:
        thresholds = replace(thresholds, pass_reward=environment.pass_reward)
    card = run_to_end(_make_card(environment, oracle, rows, seed, thresholds, odd))
    card.warnings += forgotten_tools(environment, rows.offered_tools)
    return card


async def _make_card(
    environment: Environment, oracle: Oracle, rows: Rows, seed: int, thresholds: Thresholds, odd_count: int
) -> Card:
    original, environment = environment, among_rivals(environment, oracle)
    attempts, chances, choices, gold_from = [], [], list[str](), Counter[str]()
    options = common_options(oracle.options(task) for _, _, task in rows)
    for task_id, row, task in rows:
        attempts += attempts_for(task_id, row, task, oracle, seed, options)
        chances.append(oracle.chance(task))
        choices += [oracle.gold(task) or ""] if oracle.options(task) else []
        gold_from.update(filter(None, [oracle.source(task)]))
    attacks = [attempt for attempt in attempts if attempt.name.startswith(CHEAT)]
    plain = [attempt for attempt in attempts if not attempt.name.startswith(CHEAT)]
    shuffled = random.Random(seed).sample(attempts, len(attempts))
    odd = odd_attempts(rows, oracle, odd_count, seed)
    async with shared_pool():  # its child processes stay warm from pass to pass
        first = await play(environment, plain, concurrency=1, seed=seed)
        twice = await play(checks.verifying_twice(environment), plain, concurrency=1, seed=seed)
        concurrent = await play(environment, shuffled, concurrency=CONCURRENCY, seed=seed)
        played_odd = await play(environment, odd, concurrency=CONCURRENCY, seed=seed)
        near_misses, near_miss_checks = await play_near_misses(
            environment, attempts, oracle.expected, thresholds, seed=seed, concurrency=CONCURRENCY
        )
    played = first | {attempt.id: concurrent[attempt.id] for attempt in attacks}
    exploit_limit = cards.exploit_limit(chances, choices, thresholds)
    card = Card(
        environment.name,
        rows=len(chances),
        attempts=len(attempts),
        chance=sum(chances) / len(chances),
        thresholds=thresholds,
        exploits=cards.exploits_of(attempts, played, exploit_limit, oracle.expected, choices, thresholds),
        oracle=cards.oracle_score(attempts, first, thresholds),
        false_positive=wrong_rate(attempts, first, "breaking", thresholds, oracle.place("breaking")),
        false_negative=wrong_rate(attempts, first, "preserving", thresholds, oracle.place("preserving")),
        gold_from=dict(gold_from),
        odd=odd_rate(odd, played_odd),
        near_misses=near_misses,
        cheats=cheat_rate(attempts, played, thresholds),
        oracles_failed=oracle_rate(attempts, first, thresholds),
        tool_errors=cards.tool_errors(attempts, played),
        warnings=[*_outside_of_range(original, [*played.values(), *played_odd.values()]), *_in_the_same_box(first)],
    )
    card.checks = [
        *cards.threshold_checks(card),
        *near_miss_checks,
        checks.every_answer_judged("every answer judged", attempts, played),
        checks.every_answer_judged("odd answers judged", odd, played_odd),
        checks.deterministic(plain, first, twice),
        checks.isolated(plain, first, concurrent),
        checks.without_side_effects(environment, plain, twice),
        *rivals_check(original, oracle),
        *_judge_check(environment),
    ]
    return card


def attempts_for(
    task_id: str, row: Row, task: Task, oracle: Oracle, seed: int, options: tuple[str, ...] = ()
) -> list[Attempt]:
    """All attempts at one task. `options` are the common options of all tasks."""

    def attempt(kind: Kind, name: str, script: Script, number: int = 0) -> Attempt:
        return Attempt(task_id, copy.deepcopy(row), kind, name, script, number)

    context = PolicyContext(task, oracle, random.Random(f"{seed}/{task_id}"), options)
    attempts = [attempt("exploit", name, script, number) for name, number, script in exploits(context)]
    right = oracle.script(task)
    if right is not None:
        attempts.append(attempt("oracle", "oracle", right))
        attempts += [attempt("preserving", name, script) for name, script in oracle.preserving(task).items()]
        attempts += [attempt("breaking", name, script) for name, script in oracle.breaking(task).items()]
    return attempts


def odd_attempts(rows: Rows, oracle: Oracle, count: int, seed: int) -> list[Attempt]:
    """Odd answers, in turn to every task."""
    tasks = list(rows)
    attempts = []
    for place, (task_id, row, task) in enumerate(tasks):
        answers = odd_answers(count, seed=seed, answer=partial(oracle.answer, task), right=oracle.script(task))
        for number, odd in islice(enumerate(answers), place, None, len(tasks)):
            attempts.append(Attempt(task_id, copy.deepcopy(row), "odd", f"odd/{odd.name}", odd.script, number))
    return attempts


def _outside_of_range(environment: Environment, rollouts: list[Rollout]) -> list[str]:
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    return outside_of_range(environment, min(rewards), max(rewards)) if rewards else []


def _in_the_same_box(played: checks.Played) -> list[str]:
    """A warning if verdicts were made where the model had worked: `same_box` in their values says so."""
    judged = [rollout.verdict for rollout in played.values() if rollout.verdict is not None]
    same = sum(bool(verdict.values.get("same_box")) for verdict in judged)
    words = f"{same} of {len(judged)} verdicts are from the model's own box, where it may have replaced programs"
    return [words] if same else []


def _judge_check(environment: Environment) -> list[checks.Check]:
    """For environments with a judge: which judge gave the verdicts."""
    if not isinstance(environment.config, JudgeModelConfig):
        return []
    judge = environment.config.judge
    if judge is None:
        claim = "answers that need a judge"
        return [checks.Check("judge", "skipped", "no judge is set: --set resources.judge=SPEC", claim)]
    return [checks.Check("judge", "ok", f"answers were judged by {judge}")]
