"""Files of rollouts that are torn, or something else: one line says so, and an earlier export stays."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from data_rows import command, read
from hypothesis import given, settings
from hypothesis import strategies as st
from ludus_data.export.exporting import export
from ludus_data.export.registry import FORMATS as ALL_FORMATS
from rollout_files import rollout, with_tools, write

from ludus import UserError

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
        (lambda data: data + b"[1]\n", "run.jsonl:4: not a rollout: not a JSON object. Repair the line or remove it"),
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


@pytest.mark.parametrize("to", ["csv", "hf", "verl", "sft", "atif"])
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"responses_create_params": {}}, "has no prompt"),
        ({"response": {"output": ["text", {"role": "assistant", "content": "a"}]}}, "has no form as chat messages"),
        ({"verdict_fields": True}, None),
        ({"verdict_fields": [[1], {}, "reward"]}, None),
    ],
)
def test_a_row_that_lacks_a_part_is_left_out_with_the_reason(tmp_path, to, changed, reason):
    row = orjson.loads(rollout("a", 0, 1.0).encode()) | changed
    (tmp_path / "run.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    made = export(tmp_path / "run.jsonl", to, tmp_path / "out")
    left_out = {} if reason is None or to == "csv" else {reason: 1}
    assert (made.rollouts, made.used) == (1, 1 - len(left_out))
    assert sum(made.left_out.values()) == len(left_out)


ODD = st.one_of(
    st.sampled_from(["", "\0", "=1+1", '"', None, True, -1, 2**70, 1e308, [], {}, [["x"]], ["a", 1, None], {"a": {}}]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of nested lists and objects stand."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places(inner, (*place, key))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rows_that_hold_anything_anywhere_are_used_or_left_out_or_named(data):
    rows = [orjson.loads(with_tools(repeat=repeat, reward=float(repeat)).encode()) for repeat in range(2)]
    for row in rows:
        for _ in range(data.draw(st.integers(0, 2))):
            *outer, last = data.draw(st.sampled_from(list(places(row))))
            inside: Any = row
            for key in outer:
                inside = inside[key]
            if data.draw(st.booleans()):
                inside[last] = data.draw(ODD)
            else:
                del inside[last]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "run.jsonl")
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for to in ALL_FORMATS:
            try:
                made = export(source, to, Path(folder, f"out-{to}"))
            except UserError:  # the file cannot be read; anything else would be a crash
                continue
            assert made.rollouts == 2 == made.used + sum(made.left_out.values())
