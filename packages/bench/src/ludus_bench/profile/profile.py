"""The profile of one or more runs: of each task, of each environment and of all.

Rollouts are read as a stream. In memory are the sums of each task (about 2 KB) and the ids of the rollouts of the run
that is being read, so memory grows with the number of tasks and not with the size of the rollouts. Rewards are those of
completed rollouts; failed and masked rollouts are counted and have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ludus.collection.metrics import MAX_TASKS_LISTED
from ludus.collection.results import Run
from ludus.compare.scores import LARGEST
from ludus.dialects.usage import token_count
from ludus.errors import UserError
from ludus.outcome import PASS_REWARD, Outcome
from ludus.record import asked
from ludus.rollout import Rollout
from ludus.store.prices import Price
from ludus.store.stored_run import RecordedScale, each_run_once
from ludus.store.verifiers import Verifiers
from ludus_bench.profile.sums import Sums
from ludus_bench.profile.tasks import TaskProfile, written_characters


class Profile:
    """The profile of runs that are read together.

    profile = Profile(["runs/first"])
    profile.summary()["overall"]["learning_signal"]["share"]
    """

    def __init__(
        self,
        runs: Iterable[str | Path],
        *,
        pass_reward: float | None = None,
        prices: dict[str, Price] | None = None,
    ) -> None:
        self.runs = each_run_once(runs, "ludus profile")
        self._prices, self._pass_reward = prices or {}, pass_reward
        self._stored = [(Run(path), str(path)) for path in self.runs]
        self._scales = _scales(self._stored, pass_reward)
        self.tasks: dict[tuple[str, str], TaskProfile] = {}
        self._verifiers = Verifiers()
        self._overall = Sums(list(self._scales.values()), self._prices)
        self._environments: dict[str, Sums] = {}
        for run, _ in self._stored:
            self._add_run(run)
        if not self.tasks:
            raise UserError(f"{self.runs[0]} holds no rollouts", "Collect some with: ludus collect ENV --output DIR")

    def summary(self) -> dict[str, Any]:
        """The profile as one JSON object. It lists the first `MAX_TASKS_LISTED` tasks; the difficulty file has all."""
        tasks = list(self.tasks.values())
        by_environment: dict[str, list[TaskProfile]] = {}
        for task in tasks:
            by_environment.setdefault(task.environment, []).append(task)
        return {
            "runs": [str(path) for path in self.runs],
            "overall": self._overall.summary(tasks),
            "environments": {
                name: sums.summary(by_environment[name]) for name, sums in sorted(self._environments.items())
            },
            "several_verifiers": self._verifiers.several(),
            "tasks": [task.row() for task in tasks[:MAX_TASKS_LISTED]],
            "tasks_left_out": max(len(tasks) - MAX_TASKS_LISTED, 0),
        }

    def rollouts(self) -> Iterable[Rollout]:
        """All completed and masked rollouts, read again."""
        return (rollout for run, _ in self._stored for rollout in run)

    def _add_run(self, run: Run) -> None:
        named = run.stored.model
        seen: dict[tuple[str, str], TaskProfile] = {}
        for rollout, is_last in run.attempts():
            environment, task_id = rollout.job.environment, rollout.task_id
            sums = self._environments.get(environment)
            if sums is None:
                sums = self._environments[environment] = Sums([self._scale(environment)], self._prices)
                if environment not in self._scales:
                    self._overall.add_scale(self._scale(environment))
            answered = rollout.response.data.get("model") if rollout.response is not None else None
            models = tuple(dict.fromkeys(name for name in (answered, named) if name and isinstance(name, str)))
            for part in (self._overall, sums):
                part.add_attempt(rollout, models, is_last=is_last)
            if is_last:
                key = environment, task_id
                task = self.tasks.get(key)
                if task is None:
                    task = self.tasks[key] = TaskProfile(*key, asked(vars(rollout.task)))
                seen[key] = task
                self._add_rollout(rollout, task, (self._overall, sums))
        for task in seen.values():
            task.end_group()

    def _add_rollout(self, rollout: Rollout, task: TaskProfile, both: tuple[Sums, Sums]) -> None:
        for sums in both:
            sums.add_rollout(rollout, f"{task.environment}\0{task.task_id}")
        verdict = rollout.verdict
        self._verifiers.add(task.environment, rollout.receipt)
        if rollout.outcome is Outcome.ENDED_EARLY:
            return
        if rollout.outcome is Outcome.FAILED or verdict is None:
            task.failed += 1
        elif rollout.outcome is Outcome.MASKED:
            task.masked += 1
        else:
            if abs(verdict.reward) > LARGEST:
                raise UserError(
                    f"rollout {rollout.rollout_id:.80}: a reward of {verdict.reward:g} is too large to profile"
                )
            passed = verdict.reward >= self._scale(task.environment).pass_reward
            tokens, characters = token_count(rollout.usage, "output_tokens"), written_characters(rollout)
            task.add_reward(verdict.reward, passed)
            task.characters.add(characters, verdict.reward)
            if tokens:
                task.tokens.add(tokens, verdict.reward)
            for sums in both:
                sums.add_reward(verdict, tokens, characters, passed)

    def _scale(self, environment: str) -> RecordedScale:
        known = self._scales.get(environment)
        if known is not None:
            return known
        return RecordedScale(environment, PASS_REWARD if self._pass_reward is None else self._pass_reward, None)


def _scales(runs: list[tuple[Run, str]], pass_reward: float | None) -> dict[str, RecordedScale]:
    """How each environment scores. Runs that disagree about a pass are refused: their pass rates do not add up."""
    scales: dict[str, RecordedScale] = {}
    first: dict[str, str] = {}
    for run, name in runs:
        for scale in run.stored.scales:
            if pass_reward is not None:
                scale = scale._replace(pass_reward=pass_reward)
            known = scales.setdefault(scale.name, scale)
            where = first.setdefault(scale.name, name)
            if known.pass_reward != scale.pass_reward:
                differ = f"{known.pass_reward:g} in {where} and {scale.pass_reward:g} in {name}"
                raise UserError(f"a pass of {scale.name} is a reward of {differ}", "Choose one with --pass")
    return scales
