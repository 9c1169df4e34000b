"""An export in helper processes gives what an export in one process gives, also if helpers are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from ludus_data.export import blocks
from ludus_data.export.exporting import export
from ludus_data.filters import Filters
from rollout_files import rollout, with_tools, write

from ludus import UserError
from ludus.response import message, reasoning

FORMATS = ("sft", "openai", "csv", "hf", "verl", "atif", "grpo")


@pytest.fixture
def helpers(monkeypatch: Any) -> None:
    monkeypatch.setattr(blocks, "MIN_BYTES", 0)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(blocks, "processors", lambda: 2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    thought = [reasoning("A thought."), message("Cold.")]
    rollouts = [
        *[with_tools("tools", repeat, float(repeat)) for repeat in range(8)],
        *[rollout("thought", repeat, 1.0, items=thought) for repeat in range(8)],
        *[rollout("masked", repeat, 0.0, mask="too long") for repeat in range(3)],
        *[rollout("silent", repeat, 0.0, items=[]) for repeat in range(3)],
    ]
    path = write(tmp_path / "run.jsonl", rollouts)
    path.write_bytes(path.read_bytes() + b'{"rollout_id": "torn')
    return path


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def contents(path: Path) -> Any:
    """The content of an export. Tables are read, because their rows may lie in other groups."""
    if path.is_dir():
        path = next((path / "data").iterdir())
    data = path.read_bytes()
    if data.startswith(b"PAR1"):
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return data


@pytest.mark.parametrize("to", FORMATS)
def test_helpers_make_the_same_export_with_the_same_counts(run, tmp_path, helpers, monkeypatch, to):
    if to in ("hf", "verl"):
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    shares: list[float] = []
    helped = export(run, to, tmp_path / "helped", tick=shares.append).as_json()
    monkeypatch.setattr(blocks, "MIN_BYTES", 1 << 60)
    alone = export(run, to, tmp_path / "alone").as_json()
    assert contents(tmp_path / "helped") == contents(tmp_path / "alone")
    assert [Path(name).name.replace("helped", "alone") for name in helped.pop("outputs")] == [
        Path(name).name for name in alone.pop("outputs")
    ]
    assert helped == alone
    assert helped["left_out"]["incomplete last line"] == 1
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("to", ["hf", "verl"])
def test_a_table_of_whole_groups_has_all_rows_in_order(tmp_path, to):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    run = write(tmp_path / "run.jsonl", [rollout(f"t{number:02}", 0, number % 2) for number in range(37)])
    export(run, to, tmp_path / "all")
    made = export(run, to, tmp_path / "grouped", filters=Filters(pass_rate=(0.0, 1.0)))
    assert (made.used, made.rows) == (37, 37)
    assert contents(tmp_path / "grouped") == contents(tmp_path / "all")


def test_long_lines_are_exported_too(tmp_path, helpers):
    long = message("word " * 2_000_000)
    items = [[message("short")], [long], [message("short")], [long], [message("short")]]
    rollouts = [rollout("t", repeat, 1.0, items=each) for repeat, each in enumerate(items)]
    export(write(tmp_path / "run.jsonl", rollouts), "sft", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [len(row["messages"][-1]["content"]) for row in rows] == [5, 10_000_000, 5, 10_000_000, 5]


def test_an_error_names_the_first_bad_line_and_leaves_nothing(run, tmp_path, helpers):
    lines = run.read_bytes().splitlines(keepends=True)
    lines[12], lines[17] = b"{}\n", b"[]\n"
    run.write_bytes(b"".join(lines))
    before = children()
    with pytest.raises(UserError, match=r"run.jsonl:13: not a rollout"):
        export(run, "sft", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]
    assert not children() - before


def test_killed_helpers_lose_nothing(tmp_path, helpers):
    run = write(tmp_path / "run.jsonl", [rollout("t", repeat, 1.0) for repeat in range(400)])
    killed: set[int] = set()
    before, exported = children(), threading.Event()

    def kill() -> None:
        while not exported.is_set() and len(killed) < 5:
            for child in children() - before - killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                    killed.add(child)
            exported.wait(0.001)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        made = export(run, "sft", tmp_path / "out.jsonl")
    finally:
        exported.set()
        killer.join()
    assert killed
    assert (made.rollouts, made.used) == (400, 400)
    ids = [json.loads(line)["ludus"]["rollout_id"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert ids == [f"t-{repeat}" for repeat in range(400)]
