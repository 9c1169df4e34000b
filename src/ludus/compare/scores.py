"""The rewards of a collection by task, read from its files.

Rollouts are read as a stream, and only their rewards are kept in memory. Failed and masked rollouts are counted; they
contribute no reward, and in particular no 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.errors import Failure, UserError
from ludus.store.figures import RewardFigures
from ludus.store.parsing import NOT_JSON, parse
from ludus.store.run import differences
from ludus.store.stored_run import StoredRun, environment_of, pass_reward_of
from ludus.store.verifiers import Verifiers, verifier_warnings
from ludus.task import digest

#: The sums and powers of larger rewards overflow a float.
LARGEST = 1e100

_HINT = "Name a collection's folder, or a file that ludus collect or ludus verify wrote"


class TaskScore:
    """The rewards of one task's rollouts: their count, their sum, how many are passes, and whether all are 0 or 1."""

    __slots__ = ("binary", "content", "count", "passed", "total")

    def __init__(self, content: str | None = None) -> None:
        self.count = self.passed = 0
        self.total = 0.0
        self.binary = True
        self.content = content

    def add(self, reward: float, pass_reward: float) -> None:
        """Count the reward of one rollout."""
        self.count += 1
        self.total += reward
        self.passed += reward >= pass_reward
        if reward not in (0, 1):
            self.binary = False

    @property
    def mean(self) -> float:
        """The mean reward."""
        return self.total / self.count

    @property
    def passes(self) -> bool:
        """Whether more than half of the rollouts passed."""
        return 2 * self.passed > self.count

    @property
    def undecided(self) -> bool:
        """Whether exactly half of the rollouts passed."""
        return 2 * self.passed == self.count


class Scores:
    """The rewards and counts of one collection. `verifiers` are those in its receipts.

    A rollout passes from `pass_reward` on. By default that is the threshold of its environment in run.json, or 1.
    """

    def __init__(self, pass_reward: float | None = None, recorded: dict[str, float] | None = None) -> None:
        self.pass_rewards: set[float] = set()  # the thresholds that were used
        self._pass_reward, self._recorded = pass_reward, recorded or {}
        self.tasks: dict[str, TaskScore] = {}
        self.scored = self.failed = self.masked = 0
        self.verifiers = Verifiers()
        self.identity: dict[str, Any] | None = None
        self.torn = self.duplicates = 0  # lines that are left out
        self.reward: dict[str, Any] = {}  # the figures of all rewards, as metrics.json has them

    @classmethod
    def read(cls, path: Path, pass_reward: float | None = None) -> Scores:
        """Read a collection's folder or a file of rollouts."""
        run = StoredRun.opened(path, _HINT)
        scores = cls(pass_reward, run.pass_rewards)
        figures = RewardFigures(run.scales)
        with run.lines() as lines:
            for number, line in lines.counted():
                row = _row(run.files.rollouts, number, line)
                if (reward := scores._add(row)) is not None:
                    figures.add_rewards(reward, reward)
        if lines.torn == 1:  # no other line says that this is a file of rollouts
            raise UserError(f"{run.files.rollouts}:1: not JSON, or incomplete", _HINT)
        scores.torn, scores.duplicates = lines.torn, lines.duplicates
        for failed in run.failed_attempts(lines.seen):
            if failed.is_last:
                scores.tasks.setdefault(_task_id(failed.row), TaskScore())
                scores.failed += failed.row.get("outcome") != "ended_early"
        for task in scores.tasks.values():
            figures.add_task(task.count, task.passed, task.total)
        scores.reward = figures.reward()
        scores.identity = run.identity or None
        return scores

    @property
    def names_pass_reward(self) -> bool:
        """Whether a threshold other than 1 was named, so that partial credit can be a pass."""
        return self._pass_reward is not None or not self.pass_rewards <= {1.0}

    def _threshold(self, row: dict[str, Any]) -> float:
        """The lowest reward that counts as a pass for the rollout of a row."""
        threshold = self._pass_reward
        if threshold is None:
            threshold = pass_reward_of(row, self._recorded)
        self.pass_rewards.add(threshold)
        return threshold

    def _add(self, row: dict[str, Any]) -> float | None:
        """Count a rollout. Returns its reward, if it counts."""
        reward, outcome, task_id = row.get("reward"), row.get("outcome", "completed"), _task_id(row)
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = TaskScore()
        receipt = row.get("receipt")
        if isinstance(receipt, str):
            self.verifiers.add(environment_of(row), receipt)
            task.content = task.content or receipt.partition(".")[2].partition(".")[0]
        if outcome == "ended_early":
            return None
        if outcome == "failed" or not isinstance(reward, (int, float)):
            self.failed += 1
        elif outcome == "masked":
            self.masked += 1
        else:
            self.scored += 1
            task.add(float(reward), self._threshold(row))
            return float(reward)
        return None


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = parse(line)
    except Failure as failure:
        cause = failure.cause if failure.cause.startswith(NOT_JSON) else "not a rollout"
        raise UserError(f"{path}:{number}: {cause}", _HINT) from failure
    if not ("reward" in row or "outcome" in row):
        raise UserError(f"{path}:{number}: not a rollout", _HINT)
    if isinstance(row.get("reward"), (int, float)) and abs(row["reward"]) > LARGEST:
        raise UserError(f"{path}:{number}: a reward of {row['reward']:g} is too large to compare")
    return row


def warnings_about(a: Scores, b: Scores, name: str = "B") -> list[str]:
    """Warnings about differences between run A and another, called `name`, that make them harder to compare."""
    warnings = []
    if a.identity is not None and b.identity is not None:
        settings = differences(a.identity.get("environments"), b.identity.get("environments"), "environments")
        listed = [line for line in settings if ".verifier" not in line[0]]  # receipts say more about verifiers
        warnings += [f"{path} is {_shown(of_a)} in A and {_shown(of_b)} in {name}" for path, of_a, of_b in listed]
        of_a, of_b = ((identity.get("dataset") or {}).get("digest") for identity in (a.identity, b.identity))
        if of_a != of_b:
            warnings.append(f"A and {name} had different datasets; only tasks with the same id are compared")
    elif a.identity is not None or b.identity is not None:
        warnings.append(f"{name if b.identity is None else 'A'} has no run.json, so it is unknown how it was collected")
    for letter, run in (("A", a), (name, b)):
        warnings += [f"{letter}: {sentence}" for sentence in verifier_warnings(run.verifiers.several())]
    if a.verifiers.names and b.verifiers.names and a.verifiers.names != b.verifiers.names:
        warnings.append(
            f"rewards of A and {name} were given by different verifiers; "
            "score again with: ludus verify FILE --stale --output OUT"
        )
    if a.pass_rewards and b.pass_rewards and a.pass_rewards != b.pass_rewards:
        warnings.append(f"a pass is a reward {_passes(a)} in A and {_passes(b)} in {name}; choose one with --pass")
    changed = sum(
        1
        for task_id, task in a.tasks.items()
        if (other := b.tasks.get(task_id)) and task.content and other.content and task.content != other.content
    )
    if changed:
        warnings.append(f"{changed:,} tasks have the same id in A and {name} but different content")
    for letter, run in (("A", a), (name, b)):
        warnings += [f"the last line of {letter} is torn and left out"] if run.torn else []
        warnings += [f"{run.duplicates:,} duplicated lines of {letter} are left out"] if run.duplicates else []
    return warnings


def _shown(value: object) -> str:
    return "not set" if value is None else f"{value!r:.60}"


def _passes(scores: Scores) -> str:
    return " or ".join(f"of {reward:g} or more" for reward in sorted(scores.pass_rewards))


def _task_id(row: dict[str, Any]) -> str:
    named = row.get("task_id")
    return str(named) if isinstance(named, (str, int)) else digest({"asked": row.get("responses_create_params")})
