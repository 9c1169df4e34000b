"""Stored rows: reading a row's task and response, and writing the row with a new verdict.

A row is a recorded rollout, or any object with a task's fields and a `response`. Users can edit the file, so every
error in a row is a `Failure` of kind `bad_row` and no other exception.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import orjson

from ludus.errors import Failure
from ludus.outcome import UNREWARDED, Outcome, Verdict
from ludus.record import ORIGIN, Row, is_record, origin_of, record_row, task_row
from ludus.response import Response, message
from ludus.rollout import Job
from ludus.runtime.encoding import encode, may_have_long_integer
from ludus.store.parsing import bad_row, parse_lenient
from ludus.task import Task, derive_seed, digest
from ludus.thread import read_threads

#: Fields of the record that a new verdict does not change.
_UNCHANGED = ("stop_reason", "rollout_seed", "response", "usage", "timings", "model_calls", *ORIGIN)


class StoredRow:
    """One row of a file: its task, its response and its old verdict. `number` is the line number.

    `joined` says that `task` has fields that the row lacks.
    """

    __slots__ = ("is_record", "joined", "number", "row", "task")

    def __init__(self, row: Row, number: int) -> None:
        self.row = row
        self.number = number
        self.is_record = is_record(row)
        self.task = task_row(row, self.is_record)
        self.joined = False

    @property
    def reward(self) -> float | None:
        """The old reward, or None."""
        reward = self.row.get("reward")
        return float(reward) if isinstance(reward, (int, float)) and self.row.get("outcome") not in UNREWARDED else None

    @property
    def name(self) -> str:
        """The rollout's id."""
        return str(self.row["rollout_id"] if self.is_record else self.head["rollout_id"])

    @property
    def is_masked(self) -> bool:
        """Whether the rollout was masked."""
        return bool(self.row.get("outcome") == "masked")

    @property
    def unreadable(self) -> Failure | None:
        """The failure of a line that an earlier `ludus verify` could not read and kept as `text`; else None."""
        if not self._was_bad:
            return None
        row = self.row
        name, cause = f"line-{row.get('line')}", row.get("cause")
        is_text = isinstance(row.get("text"), str) and row["rollout_id"] == row["task_id"] == name
        return bad_row(cause) if is_text and isinstance(cause, str) and "response" not in row else None

    @property
    def head(self) -> Row:
        """The fields that name a rollout. A row that is no record is named after its task and line number."""
        row = self.row
        if not self.is_record:
            task_id = self._task_id()
            name = f"{task_id}-{self.number}"
            return {"rollout_id": name, "task_id": task_id, "repeat": self.number, "attempt": 1}
        repeat, attempt = row.get("repeat"), row.get("attempt")
        return {
            "rollout_id": row["rollout_id"],
            "task_id": row["task_id"],
            "repeat": repeat if isinstance(repeat, int) else 0,
            "attempt": attempt if isinstance(attempt, int) else 1,
        }

    @property
    def known_seed(self) -> int | None:
        """The seed of the rollout's session, or None if the row does not have it."""
        origin = origin_of(self.row) if "session_seed" in self.row else None
        seed = origin["session_seed"] if origin is not None else self.row.get("rollout_seed")
        return seed if isinstance(seed, int) else None

    @property
    def seed(self) -> int:
        """The seed of the rollout's session; a seed of its own for a row that does not have it."""
        known = self.known_seed
        return known if known is not None else derive_seed(0, self.head["task_id"], self.head["repeat"])

    def job(self, task: Task, environment: str) -> Job:
        """The job that scores this row again."""
        name, task_id, repeat, attempt = self.head.values()
        return Job(name, task_id, repeat, task, self.task, attempt, self.seed, environment)

    def response(self) -> Response:
        """The recorded response. A plain string is a response with one message."""
        response = self.row.get("response")
        if response is None:
            raise bad_row("the row has no response", "verify")
        if isinstance(response, str):
            return Response.of(message(response))
        try:
            checked = Response.checked(response)
            checked.threads = read_threads(self.row)
        except Failure as error:
            raise bad_row(f"response: {error.cause}", "verify") from None
        return checked

    def rescored_line(self, line: bytes, environment: str, verdict: Verdict, receipt: str, drift: Row | None) -> bytes:
        """The line to write for a verdict: `line`, which held this row, if nothing changed."""
        if not self._has(verdict, drift):
            return self.with_exact_integers(line).scored_line(environment, verdict, receipt, drift)
        before = self.row["receipt"]
        return line if before == receipt else _with_receipt(line, before, receipt)

    def with_exact_integers(self, line: bytes) -> StoredRow:
        """This row, parsed again if `line` has long integers: orjson rounds integers of more than 64 bits."""
        row = parse_lenient(line) if may_have_long_integer(line) else None
        if not isinstance(row, dict):
            return self
        exact = StoredRow(row, self.number)
        if self.joined:
            exact.task |= {key: self.task[key] for key in self.task if exact.task.get(key) is None}
        return exact

    def _has(self, verdict: Verdict, drift: Row | None) -> bool:
        """Whether the row records this verdict and drift, so that only its receipt may differ."""
        row, values = self.row, verdict.values
        get = row.get
        return (
            get("reward") == verdict.reward
            and get("outcome") == ("masked" if verdict.mask else "completed")
            and get("verdict_fields", []) == list(values)
            and values.items() <= row.items()
            and get("mask") == (verdict.mask or None)
            and get("reward_components", {}) == verdict.components
            and get("turn_rewards", []) == verdict.turn_rewards
            and get("replay_drift") == drift
            and self.is_record
            and not self.joined
            and "receipt" in row
        )

    def scored_line(self, environment: str, verdict: Verdict, receipt: str, drift: Row | None) -> bytes:
        """The line of a scored row, in the format of `rollouts.jsonl`."""
        outcome = Outcome.MASKED if verdict.mask else Outcome.COMPLETED
        rest = {"receipt": receipt, **self._unchanged()}
        if drift:
            rest["replay_drift"] = drift
        return encode(record_row({**self.head, "outcome": outcome}, environment, self.task, verdict, rest)) + b"\n"

    def failed_line(self, line: bytes, environment: str, failure: Failure) -> bytes:
        """The line of a row that could not be scored: no reward, but the task and response for another try.

        A row that is nested too deeply to be written is kept as the text of `line`, which held it.
        """
        rest = {"line": self._first_number, **self._unchanged()} if failure.kind == "bad_row" else self._unchanged()
        head = {**self.head, "outcome": Outcome.FAILED}
        try:
            return encode(record_row(head, environment, self.task, failure, rest)) + b"\n"
        except RecursionError:
            return unreadable_line(failure, self.number, line)

    @property
    def _was_bad(self) -> bool:
        """Whether an earlier `ludus verify` recorded this row as a bad row."""
        row = self.row
        return row.get("outcome") == "failed" and row.get("kind") == "bad_row" and self.is_record

    @property
    def _first_number(self) -> int:
        """The line number at which a bad row was found first: it moves up when blank lines before it are dropped."""
        first = self.row.get("line") if self._was_bad else None
        return first if isinstance(first, int) else self.number

    def _task_id(self) -> str:
        named = self.task.get("task_id")
        try:
            return str(named) if isinstance(named, (str, int)) else digest(self.task)
        except TypeError:  # nested too deeply to be written
            return f"line-{self.number}"

    def _unchanged(self) -> Row:
        """The fields of the record that a new verdict does not change."""
        fields = {key: self.row[key] for key in _UNCHANGED if key in self.row}
        if isinstance(fields.get("response"), str):
            fields["response"] = Response.of(message(fields["response"])).data
        return fields


def unreadable_line(failure: Failure, number: int, line: bytes) -> bytes:
    """The line to write for a line without a usable JSON object: the failure, and the old line as `text`."""
    name, text = f"line-{number}", line.decode("utf-8", "replace").rstrip("\r\n")
    row = {"rollout_id": name, "task_id": name, "outcome": "failed", "text": text}
    return StoredRow(row, number).failed_line(line, "", failure)


def _with_receipt(line: bytes, before: Any, receipt: str) -> bytes:
    """A record with another receipt in place of `before`. All else is written as it was, whatever orjson can hold."""
    old = b'"receipt":"%b"' % before.encode() if isinstance(before, str) and before.isascii() else b""
    if old and old in line and line.count(b'"receipt"') == 1:  # the text of a model holds no quote without a backslash
        return line.replace(old, b'"receipt":"%b"' % receipt.encode())
    if not may_have_long_integer(line):
        with contextlib.suppress(orjson.JSONDecodeError):
            return encode({**orjson.loads(line), "receipt": receipt}) + b"\n"
    return json.dumps({**parse_lenient(line), "receipt": receipt}, separators=(",", ":")).encode() + b"\n"
