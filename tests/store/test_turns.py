"""The journal of turns: it keeps the lines of rollouts that have not ended, through compactions and kills."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import mkdtemp

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ludus.errors import UserError
from ludus.store import turns as module
from ludus.store.turns import TurnJournal

NAMES = st.sampled_from([f"task-{number}" for number in range(6)])


def line(name: str, number: int, size: int = 0, attempt: int = 1) -> bytes:
    return orjson.dumps({"rollout_id": name, "attempt": attempt, "from": number, "items": ["x" * size]})


#: What may follow the last whole line: the beginning of another one, or a block of the disk that was never written.
TORN = st.integers(0, 50).map(lambda size: line("task-1", 7)[:size]) | st.integers(1, 9).map(bytes)


class TurnsAgainstADictionary(RuleBasedStateMachine):
    """Compares the journal with a dictionary of lines. Small limits make it compact all the time."""

    @initialize()
    def open(self):
        self.path = Path(mkdtemp(dir=os.environ["TURNS_FOLDER"])) / "turns.jsonl"
        self.journal = TurnJournal(self.path)
        self.kept: dict[str, list[bytes]] = {}
        self.ended: set[str] = set()
        self.number = 0

    @rule(name=NAMES, size=st.integers(0, 300))
    def add(self, name, size):
        if name not in self.ended:
            self.number += 1
            self.journal.add(name, line(name, self.number, size))
            self.kept.setdefault(name, []).append(line(name, self.number, size))

    @rule()
    def flush(self):
        self.journal.flush()

    @rule(name=NAMES)
    def end(self, name):
        self.journal.end(name)
        if self.kept.pop(name, None) is not None:
            self.ended.add(name)

    @rule(torn=TORN)
    def kill_and_resume(self, torn):
        """A kill leaves what is written, and perhaps half a line and half a compaction."""
        self.journal.flush()
        if self.journal._journal is not None:
            os.close(self.journal._journal._file)
            self.journal._journal._file = -1
        with self.path.open("ab") as file:
            file.write(torn)
        ended, self.journal = self.ended, TurnJournal(self.path)
        self.journal.restore(lambda name, attempt: name not in ended and attempt == 1)

    @invariant()
    def holds_the_lines_of_unfinished_rollouts(self):
        assert self.journal.unfinished == len(self.kept)
        for name, lines in self.kept.items():
            assert self.journal.lines(name).splitlines() == lines

    def teardown(self):
        self.journal.close()
        assert self.path.exists() == bool(self.kept)
        assert [path.name for path in self.path.parent.iterdir()] == ["turns.jsonl"] * bool(self.kept)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "COMPACT_FROM", 500)
    monkeypatch.setattr(module, "COMPACT_PIECE", 200)
    monkeypatch.setenv("TURNS_FOLDER", str(tmp_path))


def test_lines_survive_compactions_and_kills(small_limits):
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    chosen = settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(TurnsAgainstADictionary, settings=chosen)


def test_the_file_stays_small_while_rollouts_end(tmp_path):
    largest = 0
    with TurnJournal(tmp_path / "turns.jsonl") as journal:
        for number in range(300):
            for turn in range(3):
                journal.add(f"task-{number}", line(f"task-{number}", turn, 50))
                journal.flush()
            if number >= 2:
                journal.end(f"task-{number - 2}")
            largest = max(largest, journal.path.stat().st_size)
        assert len(journal.lines("task-299").splitlines()) == 3
    assert largest < 5_000  # 300 rollouts wrote 90,000 bytes


def test_turns_that_cannot_be_written_are_given_up_with_one_line(tmp_path, monkeypatch):
    said: list[str] = []
    journal = TurnJournal(tmp_path / "turns.jsonl", said.append)
    journal.add("a-0", line("a-0", 0))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        journal.flush()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    journal.add("a-0", line("a-0", 1))
    journal.flush()
    assert journal.lines("a-0") == b""
    journal.end("a-0")
    journal.close()
    assert not journal.path.exists()


def test_a_line_that_is_not_json_is_refused(tmp_path):
    (tmp_path / "turns.jsonl").write_bytes(b"{\n")
    with TurnJournal(tmp_path / "turns.jsonl") as journal, pytest.raises(UserError, match=r"turns.jsonl:1: not JSON"):
        journal.restore(lambda *_: True)
