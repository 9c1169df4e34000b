"""The rewards of a collection by task, read from its files.

Rollouts are read as a stream, and only their rewards are kept in memory. Failed and masked rollouts are counted; they
contribute no reward, and in particular no 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.runtime.encoding import json_error
from ludus.runtime.formats import refuse_all_but_json_lines
from ludus.store.run import Files
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
    """The rewards and counts of one collection. `verifiers` are the verifier digests in its receipts.

    A rollout passes from `pass_reward` on. By default that is the threshold of its environment in run.json, or 1.
    """

    def __init__(self, pass_reward: float | None = None, recorded: dict[str, float] | None = None) -> None:
        self.pass_rewards: set[float] = set()  # the thresholds that were used
        self._pass_reward, self._recorded = pass_reward, recorded or {}
        self.tasks: dict[str, TaskScore] = {}
        self.scored = self.failed = self.masked = 0
        self.verifiers: set[str] = set()
        self.identity: dict[str, Any] | None = None
        self.torn = False

    @classmethod
    def read(cls, given: Path, pass_reward: float | None = None) -> Scores:
        """Read a collection's folder or a file of rollouts."""
        rollouts, failures, run = _files(given)
        described = _run_file(run) if run is not None else {}
        scores = cls(pass_reward, _recorded_pass_rewards(described))
        only_failed: dict[str, str] = {}  # the task ids of rollouts of which every attempt failed, by rollout id
        if failures is not None and failures.exists():
            for row in scores._rows(failures):
                only_failed[str(row.get("rollout_id"))] = _task_id(row)
        for row in scores._rows(rollouts):
            only_failed.pop(str(row.get("rollout_id")), None)
            scores._add(row)
        for task_id in only_failed.values():
            scores.tasks.setdefault(task_id, TaskScore())
        scores.failed += len(only_failed)
        identity = described.get("identity")
        scores.identity = identity if isinstance(identity, dict) else None
        return scores

    @property
    def names_pass_reward(self) -> bool:
        """Whether a threshold other than 1 was named, so that partial credit can be a pass."""
        return self._pass_reward is not None or not self.pass_rewards <= {1.0}

    def _threshold(self, row: dict[str, Any]) -> float:
        """The lowest reward that counts as a pass for the rollout of a row."""
        threshold = self._pass_reward
        if threshold is None:
            reference = row.get("agent_ref")
            threshold = self._recorded.get(str(reference.get("name")) if isinstance(reference, dict) else "", 1.0)
        self.pass_rewards.add(threshold)
        return threshold

    def _add(self, row: dict[str, Any]) -> None:
        reward, outcome, task_id = row.get("reward"), row.get("outcome", "completed"), _task_id(row)
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = TaskScore()
        verifier, _, rest = str(row.get("receipt") or "").partition(".")
        if verifier:
            self.verifiers.add(verifier)
            task.content = task.content or rest.partition(".")[0]
        if outcome == "failed" or not isinstance(reward, (int, float)):
            self.failed += 1
        elif outcome == "masked":
            self.masked += 1
        else:
            self.scored += 1
            task.add(float(reward), self._threshold(row))

    def _rows(self, path: Path) -> Iterator[dict[str, Any]]:
        try:
            with path.open("rb") as lines:
                refuse_all_but_json_lines(path, lines)
                for number, line in enumerate(lines, start=1):
                    if line.isspace():
                        continue
                    try:
                        row = orjson.loads(line)
                    except orjson.JSONDecodeError as error:
                        if not line.endswith(b"\n") and number > 1:  # still being written, or the writer was killed
                            self.torn = True
                            return
                        raise UserError(f"{path}:{number}: {json_error(error)}", _HINT) from error
                    if not isinstance(row, dict) or not ("reward" in row or "outcome" in row):
                        raise UserError(f"{path}:{number}: not a rollout", _HINT)
                    if isinstance(row.get("reward"), (int, float)) and abs(row["reward"]) > LARGEST:
                        raise UserError(f"{path}:{number}: a reward of {row['reward']:g} is too large to compare")
                    yield row
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}", _HINT) from error


def differences(a: Scores, b: Scores) -> list[str]:
    """Warnings about differences between two collections that make them harder to compare."""
    found = []
    if a.identity is not None and b.identity is not None:
        found += _setting_differences(a.identity.get("environments"), b.identity.get("environments"), "environments")
        of_a, of_b = ((each.get("dataset") or {}).get("digest") for each in (a.identity, b.identity))
        if of_a != of_b:
            found.append("the runs had different datasets; only tasks with the same id are compared")
    elif a.identity is not None or b.identity is not None:
        found.append(f"{'B' if b.identity is None else 'A'} has no run.json, so it is unknown how it was collected")
    if a.verifiers and b.verifiers and a.verifiers != b.verifiers:
        found.append(
            "rewards were given by different verifiers; score again with: ludus verify FILE --stale --output OUT"
        )
    if a.pass_rewards and b.pass_rewards and a.pass_rewards != b.pass_rewards:
        found.append(f"a pass is a reward {_passes(a)} in A and {_passes(b)} in B; choose one with --pass")
    changed = sum(
        1
        for name, task in a.tasks.items()
        if name in b.tasks and task.content and b.tasks[name].content and task.content != b.tasks[name].content
    )
    if changed:
        found.append(f"{changed:,} tasks have the same id in A and B but different content")
    return found + [f"the last line of {name} is torn and left out" for name, each in (("A", a), ("B", b)) if each.torn]


def _files(given: Path) -> tuple[Path, Path | None, Path | None]:
    """The paths of a collection's rollouts, failures and run.json; the last two are None for a file that has none."""
    try:
        given.stat()
    except OSError as error:
        raise UserError(f"cannot read {given}: {error.strerror}", _HINT) from error
    if not given.is_dir() and given.suffix != ".jsonl":
        return given, None, None
    files = Files(given)
    if given.name == "rollouts.jsonl" and not files.run.exists():  # the file in a collection's folder
        files = Files(given.parent)
    if given.is_dir() and not files.rollouts.exists():
        raise UserError(f"{given} holds no rollouts.jsonl", _HINT)
    return files.rollouts, files.failures, files.run


def _run_file(path: Path) -> dict[str, Any]:
    """The content of a run.json; empty if there is none."""
    try:
        described = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return described if isinstance(described, dict) else {}


def _recorded_pass_rewards(described: dict[str, Any]) -> dict[str, float]:
    """The threshold of each environment in a run.json."""
    options = described.get("options")
    found = options.get("pass_reward") if isinstance(options, dict) else None
    named = found.items() if isinstance(found, dict) else ()
    return {name: float(value) for name, value in named if isinstance(value, (int, float))}


def _passes(scores: Scores) -> str:
    return " or ".join(f"of {each:g} or more" for each in sorted(scores.pass_rewards))


def _task_id(row: dict[str, Any]) -> str:
    named = row.get("task_id")
    return str(named) if isinstance(named, (str, int)) else digest({"asked": row.get("responses_create_params")})


def _setting_differences(a: Any, b: Any, path: str) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted(a.keys() | b.keys())
        return [line for key in keys for line in _setting_differences(a.get(key), b.get(key), f"{path}.{key}")]
    return [] if a == b else [f"{path} is {a!r:.60} in A and {b!r:.60} in B"]
