"""Reading a file of rollouts line by line: a collection's, or one that NeMo Gym or another program wrote.

Users can edit a file, so a line that is not a rollout is an error with its file and line number. A last line without a
newline is left out if it is incomplete: a collection may still be writing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ludus.dialects.conversion import TOKEN_IDS
from ludus.errors import Failure, UserError, cannot_read
from ludus.outcome import Verdict
from ludus.record import Row, is_record
from ludus.response import Item, is_message
from ludus.rollout import Job, Rollout, rollout_id
from ludus.runtime.formats import refuse_all_but_json_lines
from ludus.store.resume import rollout_of
from ludus.store.run import Files
from ludus.store.stored import StoredRow, parse
from ludus.task import Task, digest
from ludus.tokens import TokenLog, tokens_from_response

#: The fields in which NeMo Gym numbers the tasks of a file, and the rollouts of a task.
_TASK_INDEX, _ROLLOUT_INDEX = "_ng_task_index", "_ng_rollout_index"

_REPAIR = "Repair the line or remove it"


def rollouts_file(given: Path) -> Path:
    """The rollouts of a collection's folder, or the file itself."""
    try:
        given.stat()
    except OSError as error:
        raise UserError(f"cannot read {given}: {error.strerror}", "Name a collection's folder or a file") from error
    if not given.is_dir():
        return given
    found = Files(given).rollouts
    if not found.exists():
        raise UserError(f"{given} holds no rollouts.jsonl", "Collect some with: ludus collect ENV --output DIR")
    return found


def each_run_once(given: Iterable[str | Path], command: str) -> list[Path]:
    """The paths of runs. A run that is named twice would count twice. `command` names the user's command."""
    seen: dict[Path, Path] = {}
    for path in map(Path, given):
        file = rollouts_file(path).resolve()
        if file in seen:
            raise UserError(f"{path} is the same run as {seen[file]}", "Name each run once")
        seen[file] = path
    if not seen:
        raise UserError("no run is given", f"Name a collection's folder: {command} runs/first")
    return list(seen.values())


class RolloutsFile:
    """The rollouts of a file. Iterating holds one rollout in memory at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Rollout]:
        """The rollouts, in the order of the file."""
        return (rollout for _, rollout in self.with_positions())

    def with_positions(self) -> Iterator[tuple[tuple[int, int], Rollout]]:
        """The rollouts, each with the byte offset and the number of its line."""
        offset = 0
        with self._open() as file:
            for number, line in enumerate(file, start=1):
                position = offset, number
                offset += len(line)
                if line.isspace():
                    continue
                try:
                    rollout = self.read_line(line, number)
                except UserError:
                    if self.is_torn(line):
                        return
                    raise
                yield position, rollout

    @staticmethod
    def is_torn(line: bytes) -> bool:
        """Whether a line ends in the middle: it has no newline and is no JSON."""
        if line.endswith(b"\n"):
            return False
        try:
            parse(line)
        except Failure as failure:
            return failure.cause.startswith("not JSON:")
        return False

    def at(self, positions: list[tuple[int, int]]) -> list[Rollout]:
        """The rollouts at positions that `with_positions` gave."""
        with self._open() as file:
            found = []
            for offset, number in positions:
                file.seek(offset)
                found.append(self.read_line(file.readline(), number))
        return found

    def _open(self) -> Any:
        try:
            file = self.path.open("rb", buffering=1 << 18)
            refuse_all_but_json_lines(self.path, file)
            return file
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def read_line(self, line: bytes, number: int) -> Rollout:
        """The rollout in a line. Raises a UserError that names the file and the line."""
        where = f"{self.path}:{number}"
        try:
            row = parse(line)
        except Failure as failure:
            cause = failure.cause if failure.cause.startswith("not JSON:") else f"not a rollout: {failure.cause}"
            raise UserError(f"{where}: {cause}", _REPAIR) from failure
        try:
            rollout = rollout_of(row) if is_record(row) else _foreign_rollout(row, number)
            _check_request(rollout.task.responses_create_params)
            _take_tokens(rollout)
        except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
            why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else getattr(error, "cause", str(error))
            raise UserError(f"{where}: not a rollout: {why}", _REPAIR) from error
        return rollout


def _foreign_rollout(row: Row, number: int) -> Rollout:
    """A rollout from a row that Ludus did not write: a task's fields, a response and a reward."""
    stored = StoredRow(row, number)
    response = stored.response()
    if "reward" not in row:
        raise ValueError("the row has no reward")
    task, index, repeat = stored.task, row.get(_TASK_INDEX), row.get(_ROLLOUT_INDEX)
    task_id, repeat = _task_id(task, index), repeat if isinstance(repeat, int) else number
    reference = row.get("agent_ref")
    name = str(reference.get("name", "")) if isinstance(reference, dict) else ""
    job = Job(rollout_id(task_id, repeat), task_id, repeat, Task.unchecked(task), task, environment=name)
    rollout = Rollout(job, usage=dict(response.usage), response=response)
    rollout.judge(Verdict(row["reward"]), "the row says mask_sample" if row.get("mask_sample") else None)
    return rollout


def _check_request(params: Any) -> None:
    """Refuse a request whose prompt is neither a text nor a list."""
    if not isinstance(params, dict) or not isinstance(params.get("input"), (str, list)):
        raise TypeError("responses_create_params has no input")


def _task_id(task: Row, index: Any) -> str:
    """The name of a task: its own, the number that NeMo Gym gave it, or a digest of its fields."""
    named = task.get("task_id")
    if isinstance(named, (str, int)):
        return str(named)
    if isinstance(index, int):
        return f"task-{index}"
    return digest({key: value for key, value in task.items() if not key.startswith("_ng_")})


def _take_tokens(rollout: Rollout) -> None:
    """Move the tokens of model calls from the items, where NeMo Gym keeps them, into the rollout's calls."""
    output = rollout.response.output if rollout.response is not None else []
    if any("prefix" in call for call in rollout.calls) or all(item.keys().isdisjoint(TOKEN_IDS) for item in output):
        return
    calls: list[dict[str, Any]] = []
    log, written = TokenLog(), 0
    for item in output:
        if not _is_by_model(item):
            calls += [{"items": written}] if written else []
            written = 0
            continue
        written += 1
        if (tokens := tokens_from_response({"output": [item]})) is not None:
            calls.append({"items": written, **log.add(tokens)})
            written = 0
    rollout.calls = calls + ([{"items": written}] if written else [])


def _is_by_model(item: Item) -> bool:
    return is_message(item) or item.get("type") in ("reasoning", "function_call")
