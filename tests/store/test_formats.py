"""Commands that read rollouts say what a file is if it does not hold JSON lines."""

from __future__ import annotations

import gzip

import pytest
import zstandard

import ludus
from ludus import UserError
from ludus.store.lines import Source

LINE = b'{"a": 1}\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(LINE), "x.jsonl: this is gzip. Unpack it: gunzip -k FILE"),
        (zstandard.compress(LINE), "x.jsonl: this is zstd. Unpack it"),
        (b"PAR1rest", "x.jsonl: this is Parquet. Write it as JSON lines"),
        (b" \n[" + LINE + b"]", "x.jsonl: this is a JSON array. Write each object on a line"),
        (b"PK\x03\x04", "x.jsonl: this is a ZIP archive"),
    ],
    ids=["gzip", "zstd", "parquet", "array", "zip"],
)
@pytest.mark.parametrize("read", [lambda path: list(ludus.load(path)), Source], ids=["load", "Source"])
def test_a_file_that_is_no_json_lines_is_named(tmp_path, content, says, read):
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=says):
        read(tmp_path / "x.jsonl")
