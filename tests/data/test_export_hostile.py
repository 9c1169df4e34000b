"""Files of rollouts that are torn, or something else: one line says so, and an earlier export stays."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest
from data_rows import command, read
from rollout_files import rollout, write

FORMATS = ("sft", "grpo", "dpo")


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    rollouts = [rollout("a", 0, 1.0), rollout("a", 1, 0.0), rollout("b", 0, 1.0)]
    return write(tmp_path / "whole.jsonl", rollouts).read_bytes()


@pytest.mark.parametrize("to", FORMATS)
def test_a_torn_last_line_is_counted_and_left_out(whole, tmp_path, to):
    (tmp_path / "run.jsonl").write_bytes(whole[:-40])
    done = command(tmp_path, "export", "run.jsonl", "--to", to, "-o", "out.jsonl", "--json")
    found = orjson.loads(done.stdout)
    assert (found["rollouts"], found["used"], found["left_out"]) == (3, 2, {"incomplete last line": 1})


def test_a_whole_last_line_without_a_newline_is_read(whole, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(whole.rstrip())
    assert command(tmp_path, "export", "run.jsonl", "--to", "sft", "-o", "out.jsonl").returncode == 0
    assert len(read(tmp_path / "out.jsonl")) == 3


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (gzip.compress, "run.jsonl: this is gzip. Unpack it: gunzip -k FILE"),
        (lambda data: b"[" + data.rstrip().replace(b"\n", b",") + b"]", "run.jsonl: this is a JSON array. Write each"),
        (lambda data: data + b"[1]", "run.jsonl:4: not a rollout: not a JSON object. Repair the line or remove it"),
        (lambda data: data.replace(b"1.0", b"NaN", 1), "run.jsonl:1: not a rollout: a reward must be a finite number"),
        (lambda data: b"\xff" + data, "run.jsonl:1: not JSON: the text is not UTF-8. Repair the line or remove it"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_the_earlier_export_stays(whole, tmp_path, to, damage, says):
    (tmp_path / "run.jsonl").write_bytes(damage(whole))
    (tmp_path / "out.jsonl").write_text("earlier")
    done = command(tmp_path, "export", "run.jsonl", "--to", to, "-o", "out.jsonl", "--overwrite")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr
    assert (tmp_path / "out.jsonl").read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "run.jsonl", "whole.jsonl"]


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"reward":0.0', b'"reward":1.0,"reward":0.0', "run.jsonl:2: the key 'reward' stands twice in an object"),
        (b'"rollout_id":"', b'"note":"\\ud800","rollout_id":"', "run.jsonl:2: not JSON: a lone surrogate at column"),
    ],
)
def test_a_line_of_which_a_parser_would_lose_something_is_named(whole, tmp_path, to, old, new, says):
    first, second, *rest = whole.splitlines(keepends=True)
    assert old in second
    (tmp_path / "run.jsonl").write_bytes(b"".join((first, second.replace(old, new, 1), *rest)))
    done = command(tmp_path, "export", "run.jsonl", "--to", to, "-o", "out.jsonl")
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert not (tmp_path / "out.jsonl").exists()
