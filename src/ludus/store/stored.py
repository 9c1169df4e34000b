"""Stored rows: the task that a row holds, and the row that a new verdict makes of it.

A row is a rollout that we wrote, or any object with a task's fields and a `response`. It comes from a file that others
may have touched, so whatever is wrong with it is a `Failure` of kind `bad_row` and never an exception of another sort.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from ludus.errors import Failure, Stage
from ludus.outcome import Outcome, Verdict
from ludus.record import ORIGIN, Row, is_record, origin_of, record_row, task_row
from ludus.response import Response, message
from ludus.rollout import Job
from ludus.runtime.encoding import encode
from ludus.task import Task, derive_seed, digest

#: Fields of the record that a verdict has no part in.
_KEPT = ("stop_reason", "rollout_seed", "response", "usage", "timings", "model_calls", *ORIGIN)

#: Every byte of a line as `0` (a digit), `.` or `x`: a long integer is found many times faster than by `re`. The digits
#: of a fraction follow a point and do not count.
_SHAPES = bytes(48 if 48 <= byte <= 57 else 46 if byte == 46 else 120 for byte in range(256))
_LONG_INTEGER = b"x" + b"0" * 19


def parse(line: bytes) -> Row:
    """The row of a line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        row = _leniently(line)
        if row is None:
            raise bad_row(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise bad_row("not a JSON object")
    return row


def _leniently(line: bytes) -> Any:
    """What Python's own parser takes and orjson does not: NaN, half a character, a mark at the beginning of a file."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def bad_row(cause: str, stage: Stage = "open") -> Failure:
    """The failure of a row that cannot be scored as it stands."""
    return Failure("bad_row", cause, stage=stage)


class Stored:
    """One row: what it says of the task, of the answer and of the verdict it got before."""

    __slots__ = ("is_record", "number", "row", "task")

    def __init__(self, row: Row, number: int) -> None:
        self.row = row
        self.number = number
        self.is_record = is_record(row)
        self.task = task_row(row, self.is_record)

    @property
    def reward(self) -> float | None:
        """The reward that the row came with, or None."""
        reward = self.row.get("reward")
        return float(reward) if isinstance(reward, (int, float)) and self.row.get("outcome") != "failed" else None

    @property
    def name(self) -> str:
        """The rollout's id."""
        return str(self.row["rollout_id"] if self.is_record else self.head["rollout_id"])

    @property
    def is_masked(self) -> bool:
        """Whether its reward was not fit to train on."""
        return bool(self.row.get("outcome") == "masked")

    @property
    def head(self) -> Row:
        """The fields that name a rollout. One without a name is named after its task and its line."""
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
    def seed(self) -> int:
        """What its session drew random numbers from."""
        origin = origin_of(self.row) if "session_seed" in self.row else None
        seed = origin["session_seed"] if origin is not None else self.row.get("rollout_seed")
        return seed if isinstance(seed, int) else derive_seed(0, self.head["task_id"], self.head["repeat"])

    def job(self, task: Task, environment: str) -> Job:
        """The attempt to judge this row again."""
        name, task_id, repeat, attempt = self.head.values()
        return Job(name, task_id, repeat, task, self.task, attempt, self.seed, environment)

    def response(self) -> Response:
        """What the model answered; a text stands for a response that is one message."""
        given = self.row.get("response")
        if given is None:
            raise bad_row("the row has no response", "verify")
        if isinstance(given, str):
            return Response.of(message(given))
        try:
            return Response.checked(given)
        except Failure as error:
            raise bad_row(f"response: {error.cause}", "verify") from None

    def line(self, line: bytes, environment: str, verdict: Verdict, receipt: str, drift: Row | None) -> bytes:
        """The line to write for a verdict: `line`, which held the row, if it says the same already."""
        if not self._says(verdict, drift):
            return self.exact(line).scored(environment, verdict, receipt, drift)
        if self.row["receipt"] == receipt:
            return line
        return encode({**self.exact(line).row, "receipt": receipt}) + b"\n"

    def exact(self, line: bytes) -> Stored:
        """This row as it is to be written again: orjson reads integers of more than 64 bits as something near them."""
        row = _leniently(line) if _LONG_INTEGER in line.translate(_SHAPES) else None
        return Stored(row, self.number) if isinstance(row, dict) else self

    def _says(self, verdict: Verdict, drift: Row | None) -> bool:
        """Whether the row is a whole record of this verdict, so that nothing but its receipt may have to change."""
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
            and "receipt" in row
        )

    def scored(self, environment: str, verdict: Verdict, receipt: str, drift: Row | None) -> bytes:
        """The line of a row that was judged, in the format of `rollouts.jsonl`."""
        outcome = Outcome.MASKED if verdict.mask else Outcome.COMPLETED
        rest = {"receipt": receipt, **self._kept()}
        if drift:
            rest["replay_drift"] = drift
        return encode(record_row({**self.head, "outcome": outcome}, environment, self.task, verdict, rest)) + b"\n"

    def failed(self, environment: str, failure: Failure) -> bytes:
        """The line of a row that could not be judged: without a reward, and with everything that a next try needs."""
        rest = {"line": self.number, **self._kept()} if failure.kind == "bad_row" else self._kept()
        head = {**self.head, "outcome": Outcome.FAILED}
        try:
            return encode(record_row(head, environment, self.task, failure, rest)) + b"\n"
        except RecursionError:
            return unreadable(failure, self.number)

    def _task_id(self) -> str:
        named = self.task.get("task_id")
        try:
            return str(named) if isinstance(named, (str, int)) else digest(self.task)
        except TypeError:  # nested too deeply to be written
            return f"line-{self.number}"

    def _kept(self) -> Row:
        """The fields of the record that a verdict has no part in."""
        kept = {key: self.row[key] for key in _KEPT if key in self.row}
        if isinstance(kept.get("response"), str):
            kept["response"] = Response.of(message(kept["response"])).data
        return kept


def unreadable(failure: Failure, number: int, line: bytes = b"") -> bytes:
    """The line that answers one that holds no row, and keeps what it holds."""
    name, text = f"line-{number}", line.decode("utf-8", "replace").rstrip("\r\n")
    row = {"rollout_id": name, "task_id": name, "outcome": "failed", **({"text": text} if text else {})}
    return Stored(row, number).failed("", failure)
