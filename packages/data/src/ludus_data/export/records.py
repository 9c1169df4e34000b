"""The records of a file of rollouts as plain rows, for work over millions of them.

Making a `Rollout` costs more than parsing its line. A line that Ludus wrote is checked here and handed out as it was
parsed; any other line (NeMo Gym's, one with the tokens in its items, a failed rollout, a broken one) goes through
`read_rollout`, which converts it or says what is wrong. The file is opened once, so it stays the same file if `ludus
verify` replaces it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from ludus.dialects.conversion import TOKEN_IDS
from ludus.errors import UserError
from ludus.record import Row
from ludus.runtime.encoding import json_error
from ludus.store.lines import Block, StoredLines
from ludus.store.strict import refuse_duplicate_keys

_REPAIR = "Repair the line or remove it"
_REWARD = b'"reward":'
_ENDED = ("completed", "masked")
_PROMPT_IDS, _IDS, _LOGPROBS = TOKEN_IDS  # three lookups are several times as fast as a comparison of sets


class Place(NamedTuple):
    """Where a line lies: byte offset, length in bytes, and line number. `plain` lines were checked already."""

    offset: int
    length: int
    number: int
    plain: bool


class Records:
    """The records of a file that count, in order or by place. One record is in memory at a time.

    While they are iterated, which is possible once, `place` says where the last one lies. With a `block`, these are the
    records of a few lines of the file, as `blocks` gives them.
    """

    def __init__(self, path: Path, block: Block | None = None) -> None:
        self.path = path
        self.lines = StoredLines(path, block)
        self.number = self._length = 0
        self._plain = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.lines.__exit__(*exc)

    def __iter__(self) -> Iterator[Row]:
        """All records. Duplicates and a last line that is still being written are left out."""
        counts = self.lines.counts
        for number, line in self.lines.lines:
            if not counts(number, line):
                continue
            self.number, self._length = number, len(line)
            row = _plain_row(line)
            self._plain = row is not None
            if row is None:
                self._refuse_half_characters(line, number)
                row = self._converted(line, number)
            elif line.count(_REWARD) > 1:  # seldom, and no place where a reward may be doubtful
                refuse_duplicate_keys(f"{self.path}:{number}", line.strip(), row)
            yield row

    @property
    def size(self) -> int:
        """The bytes of all lines."""
        return self.lines.size

    @property
    def place(self) -> Place:
        """Where the record lies that iterating gave last."""
        return Place(self.lines.offset, self._length, self.number, self._plain)

    def blocks(self, size: int) -> Iterator[Block]:
        """The lines of the file in blocks of about `size` bytes."""
        while (block := self.lines.take_block(size, with_lines=True)) is not None:
            yield block

    def at(self, place: Place) -> Row:
        """The record at a place that iterating gave."""
        line = self.lines.read_at(place.offset, place.length)
        if not place.plain:
            return self._converted(line, place.number)
        try:
            row: Row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UserError(f"{self.path}:{place.number} changed while it was read", "Start again") from error
        return row

    def _converted(self, line: bytes, number: int) -> Row:
        """The record in a line that another program wrote."""
        from ludus.store.loading import read_rollout  # most files need none, and it takes long to import

        return read_rollout(line, self.path, number, _REPAIR).to_row()

    def _refuse_half_characters(self, line: bytes, number: int) -> None:
        """Refuse a text with half of a surrogate pair: no file in UTF-8 can hold it, and a `?` is not what was said."""
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if "surrogate" in error.msg:
                why = f"{self.path}:{number}: {json_error(error)}"
                raise UserError(why, _REPAIR) from error


def _plain_row(line: bytes) -> Row | None:
    """The record in a line, if Ludus wrote it as it is; else None."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if _is_plain(row) else None


def _is_plain(row: Any) -> bool:
    """Whether a row is the record of a completed or masked rollout, with all fields of the types that we write."""
    try:
        reward, response, params = row["reward"], row["response"], row["responses_create_params"]
        if (
            row["outcome"] not in _ENDED
            or reward.__class__ is not float
            or not isfinite(reward)
            or row["rollout_id"].__class__ is not str
            or row["task_id"].__class__ is not str
            or row["repeat"].__class__ is not int
            or row["model_calls"].__class__ is not list
            or params.__class__ is not dict
            or params["input"].__class__ not in (str, list)
            or response.__class__ is not dict
            or response["output"].__class__ is not list
        ):
            return False
    except (KeyError, TypeError):  # a field is missing, or the row is no object
        return False
    for item in response["output"]:
        if item.__class__ is not dict or _PROMPT_IDS in item or _IDS in item or _LOGPROBS in item:
            return False
    for call in row["model_calls"]:  # noqa: SIM110  (a generator takes longer than the loop)
        if call.__class__ is not dict:
            return False
    return True
