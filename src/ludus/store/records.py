"""The records of a file of rollouts as plain rows, for work over millions of them.

Making a `Rollout` costs more than parsing its line. A line that Ludus wrote is checked here and handed out as it was
parsed; any other line (NeMo Gym's, one with the tokens in its items, a failed rollout, a broken one) goes through
`RolloutsFile`, which converts it or says what is wrong. The file is opened once, so it stays the same file if `ludus
verify` replaces it meanwhile.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from ludus.dialects.conversion import TOKEN_IDS
from ludus.errors import UserError, cannot_read
from ludus.record import Row
from ludus.runtime.encoding import json_error
from ludus.runtime.formats import refuse_all_but_json_lines
from ludus.store.strict import refuse_duplicate_keys

if TYPE_CHECKING:
    from ludus.store.loading import RolloutsFile

_REWARD = b'"reward":'
_ENDED = ("completed", "masked")
_PROMPT_IDS, _IDS, _LOGPROBS = TOKEN_IDS  # three lookups are several times as fast as a comparison of sets


class Place(NamedTuple):
    """Where a line lies: byte offset, length in bytes, and line number. `plain` lines were checked already."""

    offset: int
    length: int
    number: int
    plain: bool


class LineBlock(NamedTuple):
    """Whole lines, and the number of the first in its file."""

    lines: bytes | memoryview
    number: int


class Records:
    """The records of a file, in order or by place. One record is in memory at a time.

    While they are iterated, `place` says where the last one lies; `offset` and `number` are of it too. With a `block`,
    these are the records of a few lines of the file, as `blocks` gives them.
    """

    def __init__(self, path: Path, block: LineBlock | None = None) -> None:
        self.path = path
        self.offset = self.number = self.torn = 0
        self._length, self._plain, self._first = 0, False, 1
        self._file: IO[bytes]
        if block is not None:
            self._first, self.size, self._file = block.number, len(block.lines), io.BytesIO(block.lines)
            return
        try:
            self._file = path.open("rb", buffering=1 << 18)
            refuse_all_but_json_lines(path, self._file)
            self.size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise cannot_read(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Row]:
        """All records. A last line that is still being written is left out, and `torn` is 1 then."""
        self.offset = self._length = self.torn = 0
        self._file.seek(0)
        for number, line in enumerate(self._file, start=self._first):
            self.number = number
            self.offset += self._length
            self._length = len(line)
            row = _plain_row(line)
            self._plain = row is not None
            if row is not None:
                if line.count(_REWARD) > 1:  # seldom, and no place where a reward may be doubtful
                    refuse_duplicate_keys(f"{self.path}:{number}", line.strip(), row)
                yield row
            elif not line.isspace():
                self._refuse_half_characters(line, number)
                try:
                    row = self._converted(line, number)
                except UserError:
                    if self._reader.is_torn(line):
                        self.torn = 1
                        return
                    raise
                yield row

    @property
    def place(self) -> Place:
        """Where the record lies that iterating gave last."""
        return Place(self.offset, self._length, self.number, self._plain)

    def blocks(self, size: int) -> Iterator[LineBlock]:
        """The lines of the file in blocks of about `size` bytes."""
        number = 1
        self._file.seek(0)
        while lines := self._file.read(size) + self._file.readline():
            yield LineBlock(lines, number)
            number += lines.count(b"\n")

    def at(self, place: Place) -> Row:
        """The record at a place that iterating gave."""
        line = os.pread(self._file.fileno(), place.length, place.offset)
        if not place.plain:
            return self._converted(line, place.number)
        try:
            row: Row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UserError(f"{self.path}:{place.number} changed while it was read", "Start again") from error
        return row

    def _converted(self, line: bytes, number: int) -> Row:
        """The record in a line that another program wrote."""
        return self._reader.read_line(line, number).to_row()

    @cached_property
    def _reader(self) -> RolloutsFile:
        from ludus.store.loading import RolloutsFile  # most files need none, and it takes long to import

        return RolloutsFile(self.path)

    def _refuse_half_characters(self, line: bytes, number: int) -> None:
        """Refuse a text with half of a surrogate pair: no file in UTF-8 can hold it, and a `?` is not what was said."""
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if "surrogate" in error.msg:
                why = f"{self.path}:{number}: {json_error(error)}"
                raise UserError(why, "Repair the line or remove it") from error


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
