"""Rows and files that lose something when they are read, or that cost too much, are refused with one line."""

from __future__ import annotations

import datetime
import gzip
import sys
import tracemalloc

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from data_rows import command, write
from hypothesis import given
from hypothesis import strategies as st
from ludus_data.convert import convert, load_mapping
from ludus_data.dedupe import dedupe
from ludus_data.validate import validate

from ludus import UserError
from ludus.data.sources import read_lines
from ludus.prompt import load_prompt


def refused(work, *words):
    with pytest.raises(UserError) as found:
        work()
    message = str(found.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def row(number):
    return b'{"responses_create_params":{"input":"hello"},"expected_answer":%d}\n' % number


def test_columns_of_a_parquet_file_with_one_name_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    column = pyarrow.array([1])
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([column, column], names=["q", "q"]), path)
    refused(lambda: list(read_lines(path)), "2 columns are called 'q'. Rename all but one")
    inner = pyarrow.StructArray.from_arrays([column, column], names=["x", "x"])
    for values in (inner, pyarrow.ListArray.from_arrays([0, 1], inner)):
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays([values], names=["s"]), path)
        refused(lambda: list(read_lines(path)), "2 columns are called 's.", "x'")
    nested = [{"s": [{"x": {"y": 1}}], "m": {"x": 1}}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(nested), path)
    assert len(list(read_lines(path))) == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_parquet_date_that_python_cannot_hold_is_refused_with_its_row(tmp_path, unit):
    path = tmp_path / "a.parquet"
    values = pyarrow.array([0, 2**62], pyarrow.int64()).cast(pyarrow.timestamp(unit))
    try:
        pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2], "t": values}), path)
    except pyarrow.ArrowInvalid:
        pytest.skip("Parquet has no such value")
    refused(lambda: list(read_lines(path)), "a.parquet row 2: column t", "write the column as text")


def test_a_parquet_day_after_the_year_9999_is_refused(tmp_path):
    days = pyarrow.array([0, 2**31 - 1], pyarrow.int32()).cast(pyarrow.date32())
    pyarrow.parquet.write_table(pyarrow.table({"d": days}), tmp_path / "a.parquet")
    refused(lambda: list(read_lines(tmp_path / "a.parquet")), "row 2: column d")
    fine = pyarrow.table({"d": [datetime.date(2020, 1, 2)]})
    pyarrow.parquet.write_table(fine, tmp_path / "a.parquet")
    assert next(read_lines(tmp_path / "a.parquet"))[1] == b'{"d":"2020-01-02"}'


def test_flipped_bytes_in_a_parquet_file_never_escape_as_a_python_error(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"question": ["what is this"] * 3})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    content = path.read_bytes()
    errors = []
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            list(read_lines(path))
        except UserError as error:
            errors.append(str(error))
    assert len(errors) > 50
    assert not any("\n" in error for error in errors)


@pytest.mark.parametrize("digits", [str(2**64), str(-(2**63) - 1), "1" + "0" * 300])
def test_an_integer_that_would_be_rounded_is_refused_by_every_command(tmp_path, digits):
    path = tmp_path / "a.jsonl"
    path.write_bytes(row(1) + row(1).replace(b":1}", f":{digits}}}".encode()))
    for work in (
        lambda: convert(path, tmp_path / "out.jsonl"),
        lambda: dedupe([path], tmp_path / "out.jsonl", by="row"),
    ):
        refused(work, "a.jsonl:2: the integer", "Write it as text")
    report = validate([path], ["mcqa"])
    assert "more than 64 bits" in report.problems[-1].reason
    assert not (tmp_path / "out.jsonl").exists()


def test_integers_of_64_bits_and_long_digits_in_texts_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    more = b'{"responses_create_params":{"input":"12345678901234567890123"},"x":0.12345678901234567890123}\n'
    path.write_bytes(row(2**64 - 1) + row(-(2**63)) + more)
    assert dedupe([path], tmp_path / "out.jsonl", by="row").kept == 3
    assert (tmp_path / "out.jsonl").read_bytes() == path.read_bytes()


def test_dedupe_refuses_a_key_that_stands_twice(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"a":1,"a":2}\n')
    refused(lambda: dedupe([tmp_path / "a.jsonl"], by="row"), "a.jsonl:1: the key 'a' stands twice")


def test_near_duplicates_differ_in_operators_signs_and_decimals(tmp_path):
    texts = ["What is 12 + 30", "What is 12 - 30", "What is 12 * 30", "What is 12 * -30", "What is 1.2 * 30"]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b'{"q":"%s"}\n' % text.encode() for text in texts))
    assert dedupe([path], by="q", near=0.8).near == 0
    path.write_bytes(b'{"q":"A well-known sum: what is 12 + 30?"}\n{"q":"a well known sum, what is 12+30"}\n')
    assert dedupe([path], by="q", near=0.8).near == 1


@pytest.mark.parametrize("spec", ["100000000000000", ".100000000", "<501", "0>99999"])
def test_a_format_that_is_very_wide_is_refused(spec):
    refused(lambda: load_prompt(f"{{question:{spec}}}"), "wider than 500 characters")
    assert load_prompt("{q:>5}").fill({"q": "x"})["responses_create_params"]["input"][0]["content"] == "    x"


def test_an_unknown_conversion_of_a_template_is_refused():
    refused(lambda: load_prompt("{s!x}"), "the conversion !x is unknown")


def test_aliases_of_a_mapping_are_bounded(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text("map: &a\n  x: *a\n")
    refused(lambda: load_mapping(path), "contains itself")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path.write_text("\n".join(lines))
    refused(lambda: load_mapping(path), "its aliases stand for more than 100,000 values")
    path.write_text("map: &m {question: prompt}\nset: *m\n")
    assert load_mapping(path).set == {"question": "prompt"}
    path.write_text("#" * (5 * 2**20))
    refused(lambda: load_mapping(path), "is larger than 4,194,304 bytes")


LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b" \n", b"\n" * 70, b"\r" * 70, b"\n\r", b"\n\xef\xbb\xbf"])


@given(ends=st.lists(LINE_ENDS, max_size=8), last=st.booleans())
def test_rows_are_numbered_by_every_kind_of_line_end(ends, last, tmp_path_factory):
    path = tmp_path_factory.mktemp("ends") / "a.jsonl"
    pieces = [b'{"n":%d}%s' % (number, end) for number, end in enumerate(ends)]
    content = b"".join(pieces) + (b'{"n":-1}' if last else b"")
    path.write_bytes(content)
    text = content.replace(b"\xef\xbb\xbf", b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    expected = [(f"{path}:{n}", line.strip()) for n, line in enumerate(text.split(b"\n"), start=1) if line.strip()]
    assert [(where, line.strip()) for where, line in read_lines(path)] == expected


def test_rows_that_end_with_a_lone_cr_take_little_memory(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n":"%s"}\r' % (b"x" * 400) * 50_000, 1))
    next(read_lines(path))
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_lines(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 50_000
    assert peak < 6_000_000


def test_a_byte_order_mark_after_a_lone_cr_is_dropped(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"a":1}\r\xef\xbb\xbf{"a":2}\r')
    assert [line for _, line in read_lines(tmp_path / "a.jsonl")] == [b'{"a":1}', b'{"a":2}']


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_millions_of_blank_lines_are_skipped_in_bulk(tmp_path, end):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}' + end * 3_000_000 + b'{"a":2}')
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = [where.rpartition(":")[2] for where, _ in read_lines(path)]
    finally:
        sys.setprofile(None)
    assert found == ["1", "3000001"]
    assert calls < 100_000


def test_blank_lines_of_a_csv_file_are_skipped_in_bulk_and_counted(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n" + b"\n" * 1_000_000 + b'3,"4\n\n5"\n6,7\n')
    assert [where.rpartition(":")[2] for where, _ in read_lines(path)] == ["2", "1000003", "1000006"]


def test_a_csv_quote_that_is_never_closed_is_refused_early(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,2\n3,"' + b"\n" * 200_000)
    refused(lambda: list(read_lines(path)), "a.csv:3: a quote is not closed within 100,000 lines. Check the quotes")


def test_a_compressed_parquet_file_is_unpacked_up_to_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"q": ["x"]}), path)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(path.read_bytes() + bytes(5000)))
    monkeypatch.setattr("ludus.data.files.MAX_SPOOLED", 5000)
    refused(
        lambda: list(read_lines(tmp_path / "a.parquet.gz")),
        "more than 5,000 bytes",
        "Unpack it and name the unpacked file",
    )
    assert len(list(read_lines(path))) == 1


def test_compressed_files_that_are_not_unpacked_are_called_by_their_name(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.compress(b"{}\n")))
    refused(lambda: list(read_lines(path)), "this is gzip inside a compressed file. Unpack it once")
    path.write_bytes(b"\x51\x2a\x4d\x18\x04\x00\x00\x00abcd" + zstandard.compress(b"{}\n"))
    refused(lambda: list(read_lines(path)), "zstd that begins with a skippable frame. Unpack it: zstd -dk FILE")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"question": "a", "answer": NaN}', "a.jsonl:2: not JSON: NaN at column 29 is not a JSON number, use null."),
        (b'{"question": "a\xff", "answer": "1"}', "a.jsonl:2: not JSON: the text is not UTF-8."),
        (b'{"question": "a\\ud800", "answer": "1"}', "a.jsonl:2: not JSON: a lone surrogate at column"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_in_plain_words(tmp_path, line, says):
    write(tmp_path / "a.jsonl", {"question": "a", "answer": "1"}, line)
    done = command(tmp_path, "convert", "a.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
