"""The rewards of a collection, task by task: what is left of it for statistics.

Rollouts are read as a stream, and of each only its reward is kept. A rollout that failed or is masked has none; it is
counted, so that nobody takes its absence for a 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.store.run import Files
from ludus.task import digest

#: Rewards beyond this have squares and sums that no number can hold.
LARGEST = 1e100

_HINT = "Name a collection's folder, or a file that ludus collect or ludus verify wrote"


class TaskScore:
    """The rewards of one task's rollouts: their number, their sum, and how many of them were exactly 1."""

    __slots__ = ("binary", "content", "count", "ones", "total")

    def __init__(self, content: str | None = None) -> None:
        self.count = self.ones = 0
        self.total = 0.0
        self.binary = True
        self.content = content

    def add(self, reward: float) -> None:
        """One more rollout."""
        self.count += 1
        self.total += reward
        if reward == 1:
            self.ones += 1
        elif reward != 0:
            self.binary = False

    @property
    def mean(self) -> float:
        """The mean reward."""
        return self.total / self.count

    @property
    def passes(self) -> bool:
        """Whether most rollouts passed."""
        return 2 * self.ones > self.count

    @property
    def undecided(self) -> bool:
        """Whether just half of them did."""
        return 2 * self.ones == self.count


class Scores:
    """What one collection amounts to. `verifiers` are those that its receipts name."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskScore] = {}
        self.scored = self.failed = self.masked = 0
        self.verifiers: set[str] = set()
        self.identity: dict[str, Any] | None = None
        self.torn = False

    @classmethod
    def read(cls, given: Path) -> Scores:
        """Read a collection's folder or a file of rollouts."""
        rollouts, failures, run = _files(given)
        scores = cls()
        never: dict[str, str] = {}  # rollouts that only ever failed, and their tasks
        if failures is not None and failures.exists():
            for row in scores._rows(failures):
                never[str(row.get("rollout_id"))] = _task_id(row)
        for row in scores._rows(rollouts):
            never.pop(str(row.get("rollout_id")), None)
            scores._add(row)
        for task_id in never.values():
            scores.tasks.setdefault(task_id, TaskScore())
        scores.failed += len(never)
        scores.identity = _identity(run) if run is not None else None
        return scores

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
            task.add(float(reward))

    def _rows(self, path: Path) -> Iterator[dict[str, Any]]:
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.isspace():
                        continue
                    try:
                        row = orjson.loads(line)
                    except orjson.JSONDecodeError as error:
                        if not line.endswith(b"\n") and number > 1:  # it is being written, or the writer was killed
                            self.torn = True
                            return
                        raise UserError(f"{path}:{number}: not JSON: {error}", _HINT) from error
                    if not isinstance(row, dict) or not ("reward" in row or "outcome" in row):
                        raise UserError(f"{path}:{number}: not a rollout", _HINT)
                    if isinstance(row.get("reward"), (int, float)) and abs(row["reward"]) > LARGEST:
                        raise UserError(f"{path}:{number}: a reward of {row['reward']:g} is beyond comparison")
                    yield row
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}", _HINT) from error


def differences(a: Scores, b: Scores) -> list[str]:
    """What makes two collections harder to compare, one text each."""
    found = []
    if a.identity is not None and b.identity is not None:
        found += _unlike(a.identity.get("environments"), b.identity.get("environments"), "environments")
        one, other = ((each.get("dataset") or {}).get("digest") for each in (a.identity, b.identity))
        if one != other:
            found.append("the runs had different datasets; only tasks with the same id are compared")
    elif a.identity is not None or b.identity is not None:
        found.append(f"{'B' if b.identity is None else 'A'} has no run.json, so it is unknown how it was collected")
    if a.verifiers and b.verifiers and a.verifiers != b.verifiers:
        found.append(
            "rewards were given by different verifiers; ludus verify FILE --stale --output OUT brings them up to date"
        )
    changed = sum(
        1
        for name, task in a.tasks.items()
        if name in b.tasks and task.content and b.tasks[name].content and task.content != b.tasks[name].content
    )
    if changed:
        found.append(f"{changed:,} tasks have the same id in both and another content")
    return found + [f"the last line of {name} is torn and left out" for name, each in (("A", a), ("B", b)) if each.torn]


def _files(given: Path) -> tuple[Path, Path | None, Path | None]:
    """Where the rollouts of a collection are, and its failures and description where it can have them."""
    try:
        given.stat()
    except OSError as error:
        raise UserError(f"cannot read {given}: {error.strerror}", _HINT) from error
    if not given.is_dir() and given.suffix != ".jsonl":
        return given, None, None
    files = Files(given)
    if given.name == "rollouts.jsonl" and not files.run.exists():  # it is the one of a folder
        files = Files(given.parent)
    if given.is_dir() and not files.rollouts.exists():
        raise UserError(f"{given} holds no rollouts.jsonl", _HINT)
    return files.rollouts, files.failures, files.run


def _identity(path: Path) -> dict[str, Any] | None:
    try:
        identity = orjson.loads(path.read_bytes())["identity"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return identity if isinstance(identity, dict) else None


def _task_id(row: dict[str, Any]) -> str:
    named = row.get("task_id")
    return str(named) if isinstance(named, (str, int)) else digest({"asked": row.get("responses_create_params")})


def _unlike(a: Any, b: Any, path: str) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [
            line for key in sorted(a.keys() | b.keys()) for line in _unlike(a.get(key), b.get(key), f"{path}.{key}")
        ]
    return [] if a == b else [f"{path} is {a!r:.60} in A and {b!r:.60} in B"]
