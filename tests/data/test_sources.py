"""Rows are read from every format as a stream, and a file that cannot be read is called by its name."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import threading
import tracemalloc

import orjson
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from ludus import UserError
from ludus.data.files import MAX_ROW
from ludus.data.sources import read_lines

ROWS = [{"question": f'What is {n}, and "{n}"?', "answer": str(n)} for n in range(5)]
JSONL = b"".join(orjson.dumps(row) + b"\n" for row in ROWS)
CSV = b"question,answer\n" + b"".join(
    '"{}",{}\n'.format(row["question"].replace('"', '""'), row["answer"]).encode() for row in ROWS
)


def parquet(rows, **options):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file, **options)
    return file.getvalue()


def read(path):
    return [orjson.loads(line) for _, line in read_lines(path)]


def places(path):
    return [where for where, _ in read_lines(path)]


FILES = {
    "rows.jsonl": JSONL,
    "rows.json": json.dumps(ROWS, indent=2).encode(),
    "one_line.json": orjson.dumps(ROWS),
    "rows.jsonl.gz": gzip.compress(JSONL),
    "rows.jsonl.zst": zstandard.compress(JSONL),
    "rows.csv": CSV,
    "rows.tsv": CSV.replace(b'",', b'"\t').replace(b"question,", b"question\t"),
    "semicolons.csv": CSV.replace(b'",', b'";').replace(b"question,", b"question;"),
    "rows.csv.gz": gzip.compress(CSV),
    "rows.parquet": parquet(ROWS),
    "rows.parquet.zst": zstandard.compress(parquet(ROWS)),
    "rows.json.gz": gzip.compress(orjson.dumps(ROWS)),
    "gzip_inside.jsonl": gzip.compress(JSONL),
    "array_inside.jsonl": orjson.dumps(ROWS),
    "two_members.jsonl.gz": gzip.compress(JSONL[:100]) + gzip.compress(JSONL[100:]),
    "two_frames.jsonl.zst": zstandard.compress(JSONL[:100]) + zstandard.compress(JSONL[100:]),
    "byte_order_mark.jsonl": b"\xef\xbb\xbf" + JSONL,
    "byte_order_mark.csv": b"\xef\xbb\xbf" + CSV,
    "byte_order_mark.json": b"\xef\xbb\xbf" + orjson.dumps(ROWS),
    "windows.jsonl": JSONL.replace(b"\n", b"\r\n"),
    "windows.csv": CSV.replace(b"\n", b"\r\n"),
    "old_mac.jsonl": JSONL.replace(b"\n", b"\r"),
    "mixed_line_ends.jsonl": JSONL.replace(b"\n", b"\r\n", 2).rstrip(),
    "joined.jsonl": JSONL[: JSONL.index(b"\n") + 1] + b"\xef\xbb\xbf" + JSONL[JSONL.index(b"\n") + 1 :],
    "no_ending": JSONL,
    "csv_without_ending": CSV,
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    assert read(tmp_path / name) == read(str(tmp_path / name)) == ROWS
    assert all(b"\n" not in line.rstrip() for _, line in read_lines(tmp_path / name))


@pytest.mark.parametrize("name", FILES)
def test_every_format_can_be_piped(tmp_path, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)

    def write_slowly():  # the first write is shorter than what tells one format from another
        with pipe.open("wb", buffering=0) as file:
            file.write(FILES[name][:1])
            file.write(FILES[name][1:])

    writer = threading.Thread(target=write_slowly)
    writer.start()
    found = read(pipe)
    writer.join()
    assert found == ROWS


def test_places_are_lines_or_rows(tmp_path):
    for name, given in [("a.jsonl", b"\n" + JSONL), ("a.csv", b'q\n"1\n2"\n3\n'), ("a.json", FILES["rows.json"])]:
        (tmp_path / name).write_bytes(given)
    assert places(tmp_path / "a.jsonl")[0] == f"{tmp_path}/a.jsonl:2"
    assert places(tmp_path / "a.csv") == [f"{tmp_path}/a.csv:2", f"{tmp_path}/a.csv:4"]
    assert places(tmp_path / "a.json")[1] == f"{tmp_path}/a.json row 2"
    (tmp_path / "a.parquet").write_bytes(FILES["rows.parquet"])
    assert places(tmp_path / "a.parquet")[4] == f"{tmp_path}/a.parquet row 5"


LONG = b"".join(orjson.dumps({"n": n, "text": os.urandom(500).hex()}) + b"\n" for n in range(300))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl.gz", gzip.compress(LONG)[:-20_000], r"a.jsonl.gz after row \d+: this gzip file is truncated. Copy"),
        ("a.jsonl.gz", gzip.compress(LONG)[:-4], "this gzip file is truncated"),
        ("a.jsonl.gz", gzip.compress(LONG)[:200] + b"x" * 50, "this gzip file is damaged"),
        ("a.jsonl.zst", zstandard.compress(LONG)[:-20_000], r"a.jsonl.zst( after row \d+)?: this zstd file is trunc"),
        ("a.jsonl.zst", zstandard.compress(LONG)[:-1], "this zstd file is truncated"),
        ("a.jsonl.zst", zstandard.compress(LONG)[:100] + b"x" * 5000, "this zstd file is (damaged|truncated)"),
        ("a.parquet", FILES["rows.parquet"][:-10], "a.parquet: this Parquet file cannot be read: .* download it again"),
        ("a.json", orjson.dumps(ROWS)[:-10], "a.json: the JSON array ends in the middle of row 5"),
        ("a.json", orjson.dumps(ROWS) + b"{}", "a.json: there is more text after the end of the JSON array"),
        ("a.json", b'[{"a": 1},]', "a.json: row 2 is empty: there is a comma too many"),
        ("a.json", b'[{"a": "x\ny"}]', "a.json row 1: not JSON"),
        ("a.json", b'[{"a": 1}}', "a.json: a bracket does not match in row 1"),
        ("a.json", b'{\n  "a": 1\n}\n', "a.json: this is a JSON object over several lines. .*jq -c"),
        ("a.jsonl", b"question,answer\n1,2\n", "a.jsonl:1: this is CSV and not JSON. Rename it"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", "a.csv:3: 3 values for 2 columns. Check the quotes"),
        ("a.csv", b"a,b\n1,2\n1\n", "a.csv:3: 1 values for 2 columns"),
        ("a.csv", b'a,b\n1,2\n1,"2\n3,4\n', "a.csv:3: not CSV: unexpected end of data"),
        ("a.csv", b"a,a\n1,2\n", "a.csv:1: 2 columns are called a. Rename"),
        ("a.csv", b"a,\n1,2\n", "a.csv:1: a column has no name"),
        ("a.csv", b"a,b\n1,\xe9\n", "a.csv:2: not UTF-8: .*byte 3 of the line.*iconv"),
        ("a.jsonl", b"PK\x03\x04rest", "a.jsonl: this is a ZIP archive. Unpack it"),
        ("a.jsonl", b"BZh91AY", "a.jsonl: this is bzip2"),
        ("a.jsonl", '{"a": 1}'.encode("utf-16"), "a.jsonl: this is UTF-16 text. Convert it"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "this is a Git LFS pointer and not the data"),
        ("a.jsonl", b"<!DOCTYPE html><html>", "this is a web page"),
        ("a.jsonl.gz", gzip.compress(b"\0" * 257 + b"ustar" + b"\0" * 300), "this is a tar archive"),
        ("nowhere.jsonl", None, "cannot read .*nowhere.jsonl: No such file"),
    ],
)
def test_bad_input_is_one_line_with_place_and_remedy(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        list(read_lines(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_rows_before_the_end_of_a_truncated_archive_are_handed_out(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LONG)[:-20_000])
    found = []
    with pytest.raises(UserError, match="after row ") as caught:
        found.extend(orjson.loads(line)["n"] for _, line in read_lines(tmp_path / "a.jsonl.gz"))
    assert found == list(range(len(found)))
    assert f"after row {len(found)}:" in str(caught.value)


def test_types_that_json_lacks_become_text_and_nan_is_refused(tmp_path):
    import datetime
    import decimal

    row = {
        "bytes": b"\x00\xff",
        "day": datetime.date(2026, 1, 2),
        "price": decimal.Decimal("1.10"),
        "list": [{"x": 1.5}],
        "none": None,
    }
    (tmp_path / "a.parquet").write_bytes(parquet([row]))
    expected = {"bytes": "AP8=", "day": "2026-01-02", "price": "1.10", "list": [{"x": 1.5}], "none": None}
    assert read(tmp_path / "a.parquet") == [expected]
    (tmp_path / "a.parquet").write_bytes(parquet([{"s": {"x": 1.0}}, {"s": {"x": float("nan")}}]))
    with pytest.raises(UserError, match=r"a.parquet row 2: column s.x is nan. JSON has no such number"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_row_over_the_limit_is_refused_in_bounded_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr("ludus.data.files.MAX_ROW", 2**20)
    text = b'{"a": "' + os.urandom(6 * 2**20).hex().encode() + b'"}\n'
    text = b"[" + text + b"]" if name == "a.json" else b'a\n"' + text if name == "a.csv" else text
    compress = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rpartition(".")[2], bytes)
    (tmp_path / name).write_bytes(compress(text))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"longer than 1,048,576 bytes"):
            list(read_lines(tmp_path / name))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_an_archive_made_to_exhaust_memory_is_unpacked_in_small_pieces(tmp_path):
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b"x" * (400 * 2**20)))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"a.jsonl.zst:1: the row is longer than 67,108,864 bytes"):
            list(read_lines(tmp_path / "a.jsonl.zst"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 256 * 2**20


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, name):
    rows = [{"n": n, "text": f"{n % 7}" * 1000} for n in range(8000)]  # 8 MB
    kind = name.removeprefix("a.")
    text = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    if kind == "json":
        text = orjson.dumps(rows)
    elif kind == "csv":
        text = b"n,text\n" + b"".join(f"{row['n']},{row['text']}\n".encode() for row in rows)
    elif kind == "parquet":
        text = parquet(rows, row_group_size=500)
    elif "." in kind:
        text = {"gz": gzip.compress, "zst": zstandard.compress}[kind.partition(".")[2]](text)
    (tmp_path / name).write_bytes(text)
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_lines(tmp_path / name))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 8000
    assert peak < 4 * 2**20


def test_the_memory_of_parquet_is_that_of_one_row_group(tmp_path):
    rows = [{"n": n, "text": os.urandom(500).hex()} for n in range(20_000)]  # 20 MB
    (tmp_path / "a.parquet").write_bytes(parquet(rows, row_group_size=500))
    before = pyarrow.total_allocated_bytes()
    peak = max(pyarrow.total_allocated_bytes() for _ in read_lines(tmp_path / "a.parquet"))
    assert peak - before < 5 * 2**20


def test_a_pipe_is_not_read_ahead_of_its_rows(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    endless = (orjson.dumps({"n": n, "text": "x" * 1000}) + b"\n" for n in itertools.count())

    def write_until_nobody_reads():
        with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as file:
            for line in endless:
                file.write(line)

    writer = threading.Thread(target=write_until_nobody_reads)
    writer.start()
    lines = read_lines(pipe)
    assert [orjson.loads(line)["n"] for _, line in itertools.islice(lines, 100)] == list(range(100))
    lines.close()
    writer.join()


def test_the_limit_of_a_row_is_documented():
    assert MAX_ROW == 64 * 1024 * 1024
