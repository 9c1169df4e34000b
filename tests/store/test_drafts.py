"""Drafts: files that appear when they are complete, and touch no other file."""

import os
import stat
from pathlib import Path

import pytest
from ludus_data.dedupe import dedupe

from ludus.errors import UserError
from ludus.store.drafts import draft, write_whole


def test_two_writers_of_one_file_do_not_share_a_draft(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    with draft(path, "") as one:
        one.write(b"one")
        with draft(path, "") as other:
            other.write(b"other, which is longer")
        assert path.read_bytes() == b"other, which is longer"
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["rows.jsonl"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_called_part_survives_a_draft_beside_it(tmp_path: Path, fails: bool):
    part = tmp_path / "rows.jsonl.part"
    part.write_bytes(b"mine")
    try:
        with draft(tmp_path / "rows.jsonl", "") as file:
            file.write(b"new")
            assert len(hidden := set(os.listdir(tmp_path)) - {part.name}) == 1
            assert hidden.pop().startswith(".")
            if fails:
                raise UserError("stop")
    except UserError:
        pass
    write_whole(tmp_path / "metrics.json", b"{}")
    assert part.read_bytes() == b"mine"
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["metrics.json", "rows.jsonl.part", *([] if fails else ["rows.jsonl"])]
    )


def test_an_input_called_part_is_read_and_kept(tmp_path: Path):
    rows = tmp_path / "out.jsonl.part"
    rows.write_bytes(b'{"a":1}\n{"a":1}\n')
    assert dedupe([rows], tmp_path / "out.jsonl", by="a").kept == 1
    assert rows.read_bytes() == b'{"a":1}\n{"a":1}\n'
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"a":1}\n'


def test_a_draft_follows_no_link_and_has_the_mode_of_a_new_file(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"keep")
    (tmp_path / "out.json.part").symlink_to(secret)
    write_whole(tmp_path / "out.json", b"{}")
    assert secret.read_bytes() == b"keep"
    (tmp_path / "plain").write_bytes(b"")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "out.json")}
    assert len(modes) == 1


def test_a_long_file_name_leaves_room_for_its_draft(tmp_path: Path):
    path = tmp_path / ("é" * 120)
    write_whole(path, b"x")
    assert path.read_bytes() == b"x"
