"""Rows of a Parquet file, read in small batches: memory grows with one row group, not with the file."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError, missing_extra

#: The rows that are turned into Python objects at once.
_BATCH = 64


def parquet_lines(name: str, path: Path, max_size: int) -> Iterator[tuple[str, bytes]]:
    """The rows of a Parquet file with their places.

    JSON has fewer types than Parquet: bytes become base64, dates and decimals become text. NaN and infinity are
    refused: JSON cannot write them.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow, which reads Parquet files,", "data") from error
    number = 0
    try:
        # By default Arrow reads all row groups ahead: the whole file.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            _refuse_equal_names(name, file.schema_arrow)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(batch_size=_BATCH, row_groups=[group], use_threads=False):
                    for row in _rows(name, number, batch):
                        number += 1
                        where = f"{name} row {number}"
                        yield where, _line(where, row, max_size)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        cause = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        after = f" after row {number}" if number else ""
        hint = "It may be truncated: copy or download it again"
        raise UserError(f"{name}{after}: this Parquet file cannot be read: {cause:.200}", hint) from error


def _refuse_equal_names(name: str, fields: Any, inside: str = "") -> None:
    """Refuse columns, or fields of an object, that share a name: a row could keep only one of them."""
    import pyarrow

    for column, count in Counter(field.name for field in fields).items():
        if count > 1:
            raise UserError(f"{name}: {count} columns are called {f'{inside}{column}'!r:.80}", "Rename all but one")
    for field in fields:
        kind = field.type
        children = [kind.field(number) for number in range(kind.num_fields)]
        if children and pyarrow.types.is_struct(kind):
            _refuse_equal_names(name, children, f"{inside}{field.name}.")
        for child in children:  # of a list or a map: their own names are no keys
            _refuse_equal_names(name, [child], f"{inside}{field.name}.")


def _rows(name: str, before: int, batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch. A value that Python cannot hold, such as a date after the year 9999, is refused."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError, TypeError) as error:
        cause = " ".join(str(error).split())
        where = f"{name} rows {before + 1} to {before + batch.num_rows}"
        for column, values in zip(batch.schema.names, batch.columns, strict=True):
            for number, value in enumerate(values, start=before + 1):
                try:
                    value.as_py()
                except (ValueError, OverflowError, TypeError) as refusal:
                    where, cause = f"{name} row {number}: column {column:.60}", " ".join(str(refusal).split())
                    break
            else:
                continue
            break
        hint = "Repair the value, or write the column as text"
        raise UserError(f"{where} holds a value that cannot be read: {cause:.120}", hint) from error
    return rows


def _line(where: str, row: dict[str, Any], max_size: int) -> bytes:
    line = orjson.dumps({key: _plain(where, key, value) for key, value in row.items()})
    if len(line) > max_size:
        raise UserError(f"{where}: the row is longer than {max_size:,} bytes", "Leave it out")
    return line


def _plain(where: str, column: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, str) or value is None:
        return _text(where, column, value) if value is not None else None
    if isinstance(value, float):
        if not math.isfinite(value):
            hint = "JSON has no such number: write null, or leave the row out"
            raise UserError(f"{where}: column {column} is {value}", hint)
        return value
    if isinstance(value, dict):
        return {str(key): _plain(where, f"{column}.{key}", entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(where, column, entry) for entry in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    return value


def _text(where: str, column: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: column {column} is not UTF-8", "Fix the row or leave it out") from error
    return value
