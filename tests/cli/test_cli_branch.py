"""`ludus collect --branch`: kill and resume, and messages about skipped rollouts."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from branches import ASK, gist, lines
from kills import MOMENTS, kill_beyond
from serving import COUNTER

PLAYER = """
import asyncio, os
from pathlib import Path

journal, most = Path("killed", "rollouts.jsonl"), int(os.environ.get("MOST_BYTES", 1 << 40))

async def respond(request):
    await asyncio.sleep((request.seed % 7) / 500)
    while journal.exists() and journal.stat().st_size > most:  # whoever wants to kill this run is on the way
        await asyncio.sleep(0.01)
    if request.turn < 2:
        return {"call": "increment_counter", "arguments": {"count": request.seed % 3}}
    return "done"
"""
PROGRAM = [sys.executable, "-m", "ludus", "collect", COUNTER, "--model", "scripted:player:respond"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a first collection, to run commands in."""
    (tmp_path / "player.py").write_text(PLAYER)
    rows = ({**ASK, "initial_count": 0, "expected_count": n % 3, "n": n} for n in range(25))
    (tmp_path / "rows.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    first = [*PROGRAM, "--input", "rows.jsonl", "--output", "first"]
    forked.run(first, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def command(output: str, *more: str) -> list[str]:
    branch = ["--branch", "first/rollouts.jsonl", "--turn", "1", "--repeats", "4", "--concurrency", "8"]
    return [*PROGRAM, *branch, "--output", output, *more]


def content(path: Path) -> dict[str, Any]:
    rows = lines(path / "rollouts.jsonl")
    assert len({row["rollout_id"] for row in rows}) == len(rows), "a rollout is recorded twice"
    return {row["rollout_id"]: gist(row) | {"parent": row["parent"]} for row in rows}


@pytest.mark.slow
def test_a_killed_and_resumed_branch_collection_equals_an_uninterrupted_one(folder):
    forked.run(command("whole"), cwd=folder, check=True, capture_output=True)
    expected = content(folder / "whole")
    assert len(expected) == 100
    rng, kills, flag = random.Random(3), 0, ()
    journal = folder / "killed" / "rollouts.jsonl"
    for _ in range(MOMENTS):
        enough = (journal.stat().st_size if journal.exists() else 0) + rng.randrange(0, 20_000)
        variables = {**os.environ, "MOST_BYTES": str(enough)}
        process = forked.start(command("killed", *flag), cwd=folder, env=variables)
        kills += kill_beyond(enough, journal, process)
        flag = ("--resume",)
    assert kills > 1
    done = forked.run(command("killed", "--resume"), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert content(folder / "killed") == expected
    metrics = json.loads((folder / "killed" / "metrics.json").read_bytes())
    assert metrics["counts"] == {"dispatched": 100, "completed": 100, "failed": 0, "masked": 0}
    assert len(metrics["tasks"]) == 25
    other = forked.run([*command("killed", "--resume"), "--turn", "0"], cwd=folder, capture_output=True, text=True)
    assert other.returncode != 0
    assert "describes a different run: dataset.turn was 1, now 0" in other.stderr


def test_branching_reports_a_turn_that_no_rollout_reached(folder):
    done = forked.run([*command("out"), "--turn", "2", "--limit", "2"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "skipped" not in done.stderr
    none = forked.run([*command("none"), "--turn", "3"], cwd=folder, capture_output=True, text=True)
    assert none.returncode != 0
    assert "none of its rollouts made a model call after turn 3" in none.stderr
    assert "Traceback" not in none.stderr
