"""Every command that reads a run counts the same rollouts and the same failed attempts, however damaged the run is."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ludus_bench.profile.profile import Profile
from ludus_credit.crediting import Crediting
from ludus_data.export.exporting import export
from ludus_qualify.recall import recall

import ludus
from ludus import Resources, Response, ScriptedModel, UserError
from ludus.cli.show import show
from ludus.compare.scores import Scores
from ludus.rescore.rescoring import rescore
from ludus.store.counting import SeenRollouts
from ludus.store.stored_run import StoredRun
from ludus.view.index import RunIndex
from ludus.view.places import ViewedRun
from ludus.view.summary import outcome_counts

TASKS, REPEATS = 3, 2
FOREIGN = {
    "responses_create_params": {"input": "q"},
    "response": {"output": [{"role": "assistant", "content": "yes"}]},
    "reward": 1.0,
    "expected": "yes",
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
}


class Said(Resources):
    """Rewards the expected word."""

    class Task(ludus.Task):
        expected: str

    async def verify(self, task: Task, response: Response) -> float:
        return float(response.output_text == task.expected)


ANSWERS = ScriptedModel(lambda request: "yes" if request.turn == 0 else "no")
ROWS = [
    {"task_id": f"t{number}", "responses_create_params": {"input": f"{number}?"}, "expected": "yes"}
    for number in range(TASKS)
]


@dataclass
class Run:
    """A damaged run, and what it holds: how each rollout ended, and how many attempts failed."""

    rollouts: bytes
    failures: bytes
    described: bytes | None
    foreign: int = 0
    ended: dict[str, str] = field(default_factory=dict)
    in_rollouts: int = 0
    attempts: int = 0

    @property
    def counts(self) -> dict[str, int]:
        outcomes = [*self.ended.values(), *["completed"] * self.foreign]
        return {name: outcomes.count(name) for name in ("completed", "masked", "failed")}

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        (folder / "rollouts.jsonl").write_bytes(self.rollouts)
        (folder / "failures.jsonl").write_bytes(self.failures)
        if self.described is not None:
            (folder / "run.json").write_bytes(self.described)
        return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without damage: the only shard of a collection."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    ludus.collect(Said, model=ANSWERS, input=ROWS, repeats=REPEATS, output=folder, shard="1/1")
    return folder


def lines_of(whole: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (whole / "rollouts.jsonl").read_text().splitlines()]


def encoded(row: dict[str, Any], *, spaced: bool) -> bytes:
    """A line as Ludus writes it, or as another tool writes the same row."""
    return json.dumps(row, separators=(", ", ": ") if spaced else (",", ":")).encode() + b"\n"


@st.composite
def damaged(draw: st.DrawFn, whole: Path) -> Run:
    """Lines that are missing, repeated, blank, torn or masked; failures that are repeated or mended; a bad run.json."""
    recorded = lines_of(whole)
    picked = draw(st.lists(st.tuples(st.integers(0, len(recorded) - 1), st.booleans()), max_size=12))
    outcomes = draw(st.lists(st.sampled_from(["completed", "masked", "failed"]), min_size=12, max_size=12))
    run, rollouts, failures = Run(b"", b"", (whole / "run.json").read_bytes()), list[bytes](), list[bytes]()
    for (number, spaced), outcome in zip(picked, outcomes, strict=False):
        row = ended_as(recorded[number], outcome)
        rollouts.append(encoded(row, spaced=spaced) + draw(st.sampled_from([b"", b"", b"\n", b"  \n"])))
        run.ended.setdefault(row["rollout_id"], outcome)
    run.in_rollouts = len(run.ended)
    last = dict[str, str]()
    seen = set[tuple[str, int]]()
    for number, attempt in draw(st.lists(st.tuples(st.integers(0, len(recorded) - 1), st.integers(1, 3)), max_size=8)):
        row = {**ended_as(recorded[number], "failed"), "attempt": attempt}
        failures.append(encoded(row, spaced=draw(st.booleans())))
        seen.add((row["rollout_id"], attempt))
        last[row["rollout_id"]] = "failed"
    run.ended = last | run.ended
    run.attempts = len(seen)
    if torn := draw(st.integers(0, 40)):
        rollouts.append(encoded(recorded[0], spaced=False)[: 10 * torn])
    if draw(st.booleans()) and rollouts and not torn:
        rollouts[-1] = rollouts[-1].rstrip()  # the last line is whole, and lacks only its newline
    if draw(st.booleans()):
        failures.append(b'{"rollout_id":"t0-0","task_id"')
    run.rollouts, run.failures = b"".join(rollouts), b"".join(failures)
    run.described = draw(st.sampled_from([run.described, run.described, None, b"{", b"7", b"[" * 100_000]))
    return run


def ended_as(row: dict[str, Any], outcome: str) -> dict[str, Any]:
    if outcome == "failed":
        error = {"outcome": "failed", "stage": "verify", "kind": "crash", "cause": "ValueError: boom", "where": None}
        return {key: value for key, value in row.items() if key not in ("reward", "receipt")} | error
    return {**row, "outcome": outcome} | ({"mask": "too long"} if outcome == "masked" else {})


@contextlib.contextmanager
def written(run: Run) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield run.write(Path(name) / "run")


def viewed(folder: Path) -> dict[str, int]:
    index = RunIndex(ViewedRun(folder))
    while index.grow():
        pass
    with index.reading() as database:
        return outcome_counts(database)


def shown(folder: Path, number: int, *, failed: bool = False) -> bool:
    """Whether `ludus show` has a rollout with this number."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            show(folder, str(number), None, failed=failed, json_=True)
        except UserError:
            return False
    return True


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_commands_that_read_a_run_count_the_same_rollouts_and_failures(whole: Path, data: st.DataObject):
    run = data.draw(damaged(whole))
    counts, total = run.counts, len(run.ended)
    with written(run) as folder:
        attempts = list(StoredRun(folder).attempts())
        assert sum(is_last for _, is_last in attempts) == total
        assert sum(1 for _ in StoredRun(folder).failed_attempts()) == run.attempts
        outcomes = [rollout.outcome.value for rollout, is_last in attempts if is_last]
        assert {name: outcomes.count(name) for name in counts} == counts

        loaded = ludus.load(folder)
        in_file = [outcome for outcome in run.ended.values() if outcome != "failed"]
        assert len(list(loaded)) == sum(map(len, loaded.groups())) == len(in_file)
        assert loaded.metrics["counts"] == {"dispatched": total, **counts}

        assert viewed(folder) == {
            "dispatched": total,
            **counts,
            "ended_early": 0,
            "retried": len([1 for rollout, is_last in attempts if not is_last]),
        }
        for number, is_there in ((run.in_rollouts, run.in_rollouts > 0), (run.in_rollouts + 1, False)):
            assert shown(folder, number) == is_there
        for number, is_there in ((run.attempts, run.attempts > 0), (run.attempts + 1, False)):
            assert shown(folder, number, failed=True) == is_there
        made = export(folder, "csv", folder.parent / "out.csv")
        left_out = made.left_out.get("duplicate", 0) + made.left_out.get("incomplete last line", 0)
        assert made.rollouts - left_out == run.in_rollouts

        if run.in_rollouts:
            scores = Scores.read(folder)
            assert (scores.scored, scores.masked, scores.failed) == tuple(counts.values())
            assert rescore(folder, Said).rows == run.in_rollouts
            assert recall([folder], Said).total.findings.total() == run.in_rollouts
        if total:
            profile = Profile([folder]).summary()["overall"]
            assert profile["counts"] == {"dispatched": total, **counts}
            assert profile["retried_attempts"] == len(attempts) - total


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_commands_that_go_on_with_a_run_count_the_same_rollouts_and_failures(whole: Path, data: st.DataObject):
    run = data.draw(damaged(whole))
    counts = run.counts
    with written(run) as folder:
        if counts["completed"]:
            plan = Crediting(folder, Said, model=ANSWERS).plan()
            assert sum(plan["rollouts"].values()) == run.in_rollouts
        if run.described == (whole / "run.json").read_bytes():
            merged = ludus.merge([folder], folder.parent / "all", partial=True)
            assert (merged.rollouts, merged.failures) == (run.in_rollouts, run.attempts)
            assert merged.counts == {"dispatched": len(run.ended), **counts}
        shutil.rmtree(folder / "credit", ignore_errors=True)
        again = ludus.collect(
            Said,
            model=ANSWERS,
            input=ROWS,
            repeats=REPEATS,
            output=folder,
            shard="1/1",
            resume=True,
            force=True,
            max_attempts=1,
        )
        kept = {name: again.metrics["counts"][name] for name in ("failed", "masked")}
        assert kept == {name: counts[name] for name in kept}
        assert again.metrics["counts"]["dispatched"] == TASKS * REPEATS
        assert sum(is_last for _, is_last in StoredRun(folder).attempts()) == TASKS * REPEATS


def test_each_row_of_another_program_counts(tmp_path: Path, whole: Path):
    row = encoded(lines_of(whole)[0], spaced=False)
    run = Run(row + encoded(FOREIGN, spaced=True) * 3 + row, b"", None, foreign=3, ended={"t0-0": "completed"})
    folder = run.write(tmp_path / "run")
    total = {"dispatched": 4, "completed": 4, "masked": 0, "failed": 0}
    assert ludus.load(folder).metrics["counts"] == Profile([folder]).summary()["overall"]["counts"] == total
    assert viewed(folder) == {**total, "ended_early": 0, "retried": 0}
    assert Scores.read(folder).scored == rescore(folder, Said).rows == 4
    assert export(folder, "grpo", tmp_path / "out.jsonl").left_out == {"duplicate": 1}
    assert shown(folder, 4)
    assert not shown(folder, 5)


def test_verify_counts_a_duplicate_apart_and_leaves_its_line_as_it_is(tmp_path: Path, whole: Path):
    first, *_, last = (whole / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    stale = last.replace(b'"yes"', b'"no"')
    file = tmp_path / "run.jsonl"
    file.write_bytes(first + last + stale)
    changes = rescore(file, Said, output=file)
    assert (changes.rows, changes.summary()["duplicates"]) == (2, 1)
    assert file.read_bytes().splitlines(keepends=True)[2] == stale
    assert len(list(ludus.load(file))) == 2


def test_a_group_is_judged_without_duplicates(tmp_path: Path):
    class Best(Said):
        async def verify_group(self, task: Any, responses: list[Response]) -> list[float]:
            return [1.0 / len(responses)] * len(responses)

    ludus.collect(Best, model=ANSWERS, input=ROWS[:1], repeats=2, output=tmp_path / "run")
    file = tmp_path / "run" / "rollouts.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    assert rescore(file, Best).counts == {"unchanged": 2, "duplicate": 2}


def test_an_attempt_is_superseded_although_the_row_names_another_agent(tmp_path: Path):
    rows = [{**ROWS[0], "agent_ref": {"type": "responses_api_agents", "name": "somebody_else"}}]
    broken = ScriptedModel(lambda request: {}["missing"])
    ludus.collect(Said, model=broken, input=rows, output=tmp_path / "run")
    ludus.collect(Said, model=ANSWERS, input=rows, output=tmp_path / "run", resume=True, force=True)
    (tmp_path / "run" / "metrics.json").unlink()
    assert ludus.load(tmp_path / "run").metrics["counts"] == {"dispatched": 1, "completed": 1, "failed": 0, "masked": 0}
    assert viewed(tmp_path / "run")["dispatched"] == 1


def test_a_run_in_a_file_that_is_called_rollouts_has_its_own_run_json(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"identity": {"environments": {"another": {}}}}')
    ludus.collect(Said, model=ANSWERS, input=ROWS[:1], output=tmp_path / "rollouts.jsonl")
    assert StoredRun(tmp_path / "rollouts.jsonl").environments == ["Said"]
    assert StoredRun(tmp_path).environments == ["another"]


@given(st.lists(st.integers(0, 5000), max_size=4000))
def test_seen_rollouts_are_a_set(numbers: list[int]):
    seen, expected = SeenRollouts(), set[int]()
    for number in numbers:
        assert seen.add(b"%d" % number) == (number not in expected)
        expected.add(number)
    assert all((b"%d" % number in seen) == (number in expected) for number in range(0, 5000, 7))
