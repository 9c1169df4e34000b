"""Journals: after a kill or a full disk, whole lines are kept and a torn last line is cut off."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus import UserError
from ludus.store import journal as module
from ludus.store.drafts import write_whole
from ludus.store.journal import Journal

LINES = st.lists(
    st.binary(min_size=1, max_size=300).map(lambda data: b'{"x":"' + data.hex().encode() + b'"}'), max_size=20
)


@settings(max_examples=200, deadline=None)
@given(lines=LINES, cut=st.integers(0, 10_000))
def test_a_journal_truncated_at_any_byte_keeps_its_whole_lines_only(tmp_path_factory, lines, cut):
    path = tmp_path_factory.mktemp("journal") / "rollouts.jsonl"
    with Journal(path) as journal:
        for line in lines:
            journal.append(line)
    whole = path.read_bytes()
    cut = min(cut, len(whole))
    path.write_bytes(whole[:cut])
    survivors = whole[:cut].count(b"\n") + whole[:cut].endswith(b"}")  # that line lacks only its newline
    with Journal(path) as journal:
        assert len(list(journal.read())) == survivors
        journal.append(b'{"last":1}')
    assert path.read_bytes() == b"".join(line + b"\n" for line in lines[:survivors]) + b'{"last":1}\n'


def test_a_torn_line_longer_than_a_block_is_cut_off(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"x" * 300_000)
    with Journal(path) as journal:
        assert list(journal.read()) == [{"a": 1}]
    assert path.read_bytes() == b'{"a":1}\n'


def test_a_full_disk_leaves_a_valid_file_and_the_error_says_to_resume(tmp_path, monkeypatch):
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.append(b'{"a":1}')
        real, written = os.pwrite, []

        def almost_full(file: int, data: bytes, offset: int) -> int:
            if not written:
                written.append(1)
                return real(file, data[:3], offset)
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(module.os, "pwrite", almost_full)
        with pytest.raises(UserError, match="No space left on device.*--resume"):
            journal.append(b'{"b":2}')
    assert path.read_bytes() == b'{"a":1}\n'


def test_the_error_for_an_unwritable_path_names_the_path():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(UserError, match="cannot write /dev/full"):
        write_whole(Path("/dev/full/x"), b"data")


def test_two_collections_cannot_write_the_same_journal(tmp_path):
    with Journal(tmp_path / "j.jsonl"), pytest.raises(UserError, match="another process"):
        Journal(tmp_path / "j.jsonl")


def test_a_damaged_line_in_the_middle_is_reported_with_file_and_line(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"a":1}\nnonsense\n{"b":2}\n')
    with Journal(path) as journal, pytest.raises(UserError, match=r"j\.jsonl:2: not JSON"):
        list(journal.read())
