"""A run on disk, read: its files, its identity, and its rollouts. Every command that reads a run reads it here.

Which line of a rollout counts is one rule (`counting`); `StoredLines` applies it while it reads. Iterating holds one
line in memory, and a few bytes for each rollout to know duplicates by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus.errors import UserError
from ludus.outcome import PASS_REWARD
from ludus.record import Row
from ludus.runtime.regular_files import open_regular
from ludus.store.counting import CountedAttempts, SeenRollouts, attempt_of, name_of_row
from ludus.store.files import Files, read_json_object, rollouts_of
from ludus.store.lines import StoredLines
from ludus.store.parsing import parse_at

if TYPE_CHECKING:
    from ludus.rollout import Rollout

#: The outcome stands in the first bytes of our records, unless the id of the task is very long.
_OUTCOME_BYTES = 600

_REPAIR = "Repair the line or remove it"


class RecordedScale(NamedTuple):
    """How an environment scores, as run.json records it: the lowest reward of a pass, and the range of rewards."""

    name: str
    pass_reward: float
    reward_range: tuple[float, float] | None


class FailedAttempt(NamedTuple):
    """A line of failures.jsonl that counts. `is_last` says that its rollout ended with it."""

    number: int
    line: bytes
    row: Row
    is_last: bool


class StoredRun:
    """A run that a user names by its folder or by its file of rollouts. `hint` ends errors about its lines.

    run = StoredRun("runs/first")
    run.environments
    sum(1 for rollout in run.rollouts())
    """

    def __init__(self, path: str | Path, hint: str = _REPAIR) -> None:
        self.path, self.hint = Path(path), hint
        self.files = Files.of(path)

    @classmethod
    def opened(cls, path: str | Path, hint: str = "Name a collection's folder or a file") -> StoredRun:
        """A run that has a file of rollouts. `hint` ends the error if there is none."""
        rollouts_of(path, hint)
        return cls(path)

    def described(self) -> Row:
        """The content of run.json; empty if it is missing, broken or nested too deeply."""
        return self.files.described()

    def metrics(self) -> Row:
        """The content of metrics.json; empty if it is missing, broken or older than the rollouts."""
        try:
            is_fresh = self.files.metrics.stat().st_mtime_ns >= self.files.rollouts.stat().st_mtime_ns
        except OSError:
            return {}
        return read_json_object(self.files.metrics) if is_fresh else {}

    @property
    def identity(self) -> Row:
        """The identity in run.json; empty if it holds none."""
        return _part(self.described(), "identity")

    @property
    def environments(self) -> list[str]:
        """The names of the environments in run.json."""
        return list(_part(self.identity, "environments"))

    @property
    def model(self) -> str:
        """What run.json calls the model; empty if it does not say."""
        return _text(_part(self.identity, "model").get("name"))

    @property
    def dataset(self) -> str:
        """What run.json calls the dataset; empty if it does not say."""
        return _text(_part(self.identity, "dataset").get("name"))

    @property
    def scales(self) -> list[RecordedScale]:
        """How the environments of the run score; empty if run.json does not say."""
        options = _part(self.described(), "options")
        ranges = _part(options, "reward_range")
        return [
            RecordedScale(name, float(reward), _range(ranges.get(name)))
            for name, reward in _part(options, "pass_reward").items()
            if isinstance(reward, (int, float))
        ]

    @property
    def pass_rewards(self) -> dict[str, float]:
        """The lowest reward of a pass in each environment that run.json names."""
        return {scale.name: scale.pass_reward for scale in self.scales}

    def lines(self) -> StoredLines:
        """The lines of rollouts.jsonl."""
        return StoredLines(self.files.rollouts)

    def seen(self) -> SeenRollouts:
        """The rollouts of rollouts.jsonl. The lines are not parsed."""
        if not self.files.rollouts.exists():
            return SeenRollouts()
        with self.lines() as lines:
            for _ in lines:
                pass
        return lines.seen

    def rollouts(self) -> Iterator[Rollout]:
        """The rollouts of rollouts.jsonl."""
        return (rollout for _, rollout in self.with_positions())

    def with_positions(self) -> Iterator[tuple[tuple[int, int], Rollout]]:
        """The rollouts of rollouts.jsonl, each with the byte offset and the number of its line."""
        from ludus.store.loading import read_rollout

        with self.lines() as lines:
            for number, line in lines.counted():
                yield (lines.offset, number), read_rollout(line, self.files.rollouts, number, self.hint)

    def rewarded_positions(self) -> Iterator[tuple[int, int]]:
        """The positions of the completed and masked rollouts. Lines of ours are not parsed for it."""
        with self.lines() as lines:
            for number, line in lines.counted():
                start = line[:_OUTCOME_BYTES]
                if (
                    b'"outcome":"completed"' in start
                    or b'"outcome":"masked"' in start
                    or self._has_reward(number, line)
                ):
                    yield lines.offset, number

    def _has_reward(self, number: int, line: bytes) -> bool:
        from ludus.store.loading import read_rollout

        return read_rollout(line, self.files.rollouts, number, self.hint).error is None

    def at(self, positions: Iterable[tuple[int, int]]) -> list[Rollout]:
        """The rollouts at positions that `with_positions` gave."""
        from ludus.store.loading import read_rollout

        path = self.files.rollouts
        with open_regular(path) as file:
            rollouts = []
            for offset, number in positions:
                file.seek(offset)
                rollouts.append(read_rollout(file.readline(), path, number, self.hint))
        return rollouts

    def failed_attempts(self, ended: SeenRollouts | None = None) -> Iterator[FailedAttempt]:
        """The failed attempts of failures.jsonl, in order. `ended` are the rollouts of rollouts.jsonl, if known."""
        return failed_attempts(self.files.failures, self.seen() if ended is None else ended, self.hint)

    def attempts(self) -> Iterator[tuple[Rollout, bool]]:
        """Every attempt, and whether it is how its rollout ended: not if it failed and was tried again."""
        from ludus.store.loading import read_rollout

        path = self.files.rollouts
        with self.lines() as lines:
            for number, line in lines.counted():
                yield read_rollout(line, path, number, self.hint), True
        for failed in self.failed_attempts(lines.seen):
            yield read_rollout(failed.line, self.files.failures, failed.number, self.hint), failed.is_last


def failed_attempts(failures: Path, ended: SeenRollouts, hint: str) -> Iterator[FailedAttempt]:
    """The failed attempts of a file, in order. `ended` are the rollouts of rollouts.jsonl, `hint` ends errors."""
    if not failures.exists():
        return
    attempts, duplicates, last = CountedAttempts[bytes](ended), set[int](), set[int]()
    for number, _, row in _rows(failures, hint):
        name = name_of_row(row)
        if name is None:  # of another program
            last.add(number)
        elif not attempts.add(name, attempt_of(row), number):
            duplicates.add(number)
    last.update(attempts.last.values())
    for number, line, row in _rows(failures, hint):
        if number not in duplicates:
            yield FailedAttempt(number, line, row, number in last)


def _rows(path: Path, hint: str) -> Iterator[tuple[int, bytes, Row]]:
    """All lines of a file, each with its number and its row."""
    with StoredLines(path) as lines:
        for number, line, _ in lines:
            yield number, line, parse_at(f"{path}:{number}", line, hint)


def each_run_once(named: Iterable[str | Path], command: str) -> list[Path]:
    """The paths of runs. A run that is named twice would count twice. `command` names the user's command."""
    paths: dict[Path, Path] = {}
    for path in map(Path, named):
        file = rollouts_of(path).rollouts.resolve()
        if file in paths:
            raise UserError(f"{path} is the same run as {paths[file]}", "Name each run once")
        paths[file] = path
    if not paths:
        raise UserError("no run is named", f"Name a collection's folder: {command} runs/first")
    return list(paths.values())


def environment_of(row: Row) -> str:
    """The environment that a row names; empty if it names none."""
    reference = row.get("agent_ref")
    return _text(reference.get("name")) if isinstance(reference, dict) else ""


def pass_reward_of(row: Row, recorded: dict[str, float]) -> float:
    """The lowest reward that is a pass for the rollout of a row."""
    return recorded.get(environment_of(row), PASS_REWARD)


def _part(row: Row, name: str) -> Row:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _range(value: Any) -> tuple[float, float] | None:
    numbers = isinstance(value, list) and len(value) == 2 and all(isinstance(bound, (int, float)) for bound in value)
    return (float(value[0]), float(value[1])) if numbers else None
