"""Resuming: which rollouts are kept, which are retried, and which resumes are refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import orjson
import pytest
from waiting import CEILING

import ludus
from ludus import Resources, ScriptedModel, UserError

DEAD = ScriptedModel([{"error": {"kind": "refused", "cause": "cannot reach http://127.0.0.1:9"}}], name="m")
FLAKY = ScriptedModel([{"error": {"kind": "http_500", "cause": "down"}}], name="m")
GOOD = ScriptedModel(["done"], name="m")


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    words = ("collect", "example_session_state_mgmt", "--model", "scripted:script.yaml", *words)
    return forked.run(
        [sys.executable, "-m", "ludus", *words], cwd=folder, env=kept, capture_output=True, text=True, input=""
    )


def test_an_unreachable_server_uses_up_no_attempts(counter, rows, tmp_path):
    for run in range(5):
        with pytest.raises(UserError, match="cannot reach"):
            ludus.collect(counter, model=DEAD, input=rows(3), output=tmp_path, resume=run > 0)
    result = ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, resume=True)
    assert result.metrics["counts"] == {"dispatched": 3, "completed": 3, "failed": 0, "masked": 0}
    attempts = [orjson.loads(line)["attempt"] for line in (tmp_path / "rollouts.jsonl").read_bytes().splitlines()]
    assert attempts == [6, 6, 6]


def test_an_unreachable_server_between_other_failures_uses_up_no_attempt(counter, rows, tmp_path):
    ludus.collect(counter, model=FLAKY, input=rows(2), output=tmp_path)
    with pytest.raises(UserError, match="cannot reach"):
        ludus.collect(counter, model=DEAD, input=rows(2), output=tmp_path, resume=True)
    ludus.collect(counter, model=FLAKY, input=rows(2), output=tmp_path, resume=True)
    ludus.collect(counter, model=FLAKY, input=rows(2), output=tmp_path, resume=True)
    spent = ludus.collect(counter, model=GOOD, input=rows(2), output=tmp_path, resume=True)
    assert spent.metrics["counts"] == {"dispatched": 2, "completed": 0, "failed": 2, "masked": 0}


def test_resume_reports_the_failed_rollouts_that_it_does_not_retry(tmp_path):
    (tmp_path / "script.yaml").write_text("- error: {kind: http_500, cause: down}\n")
    command(tmp_path, "-o", "out", "--max-attempts", "1")
    (tmp_path / "script.yaml").write_text("- done\n")
    again = command(tmp_path, "-o", "out", "--max-attempts", "1", "--resume", "--force")
    assert "resuming: 0 of 8 rollouts are already done" in again.stderr
    assert "8 rollouts failed once and are not retried: to retry add --max-attempts 2" in again.stderr
    mended = command(tmp_path, "-o", "out", "--max-attempts", "2", "--resume", "--force")
    assert mended.returncode == 0
    assert "not retried" not in mended.stderr


def test_resume_with_fewer_repeats_than_recorded_is_refused(counter, rows, tmp_path):
    ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=4)
    with pytest.raises(UserError, match=r"holds 4 repeats of a task, more than the 1 asked for. Add --repeats 4"):
        ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, resume=True)
    again = ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=4, resume=True)
    assert again.metrics["counts"]["completed"] == 12


def test_resume_counts_a_duplicated_line_once(counter, rows, tmp_path):
    first = ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=2)
    journal = tmp_path / "rollouts.jsonl"
    journal.write_bytes(journal.read_bytes() * 2)
    again = ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=2, resume=True)
    assert again.metrics["counts"] == {"dispatched": 6, "completed": 6, "failed": 0, "masked": 0}
    for name in ("reward", "pass@k", "tasks", "usage"):
        assert again.metrics.get(name) == first.metrics.get(name)


def test_resume_counts_a_duplicated_failure_as_one_attempt(counter, rows, tmp_path):
    ludus.collect(counter, model=FLAKY, input=rows(2), output=tmp_path)
    journal = tmp_path / "failures.jsonl"
    journal.write_bytes(journal.read_bytes() * 3)
    again = ludus.collect(counter, model=GOOD, input=rows(2), output=tmp_path, resume=True)
    assert again.metrics["counts"] == {"dispatched": 2, "completed": 2, "failed": 0, "masked": 0}


RECORD = {"rollout_id": "t-0", "task_id": "t", "repeat": 0, "attempt": 1, "outcome": "completed", "reward": 1.0}
FAILED = {**RECORD, "outcome": "failed", "stage": "model", "kind": "http_500", "cause": "down"}


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        ("rollouts", {"x": 1}, "rollout_id, task_id or outcome is missing"),
        ("rollouts", [1], "rollout_id, task_id or outcome is missing"),
        ("rollouts", {**RECORD, "outcome": "splendid"}, "'splendid' is not a valid Outcome"),
        ("rollouts", {**RECORD, "repeat": "first"}, "repeat is 'first'"),
        ("rollouts", {**RECORD, "reward": "much"}, "a reward must be a finite number"),
        ("rollouts", {key: RECORD[key] for key in RECORD if key != "repeat"}, "'repeat' is missing"),
        ("rollouts", {**RECORD, "usage": [1]}, r"usage is \[1\]"),
        ("failures", {key: FAILED[key] for key in FAILED if key != "kind"}, "'kind' is missing"),
        ("failures", {**FAILED, "attempt": None}, "attempt is None"),
    ],
)
def test_a_journal_line_that_is_not_a_rollout_is_reported_with_file_and_line(counter, rows, tmp_path, file, line, why):
    ludus.collect(counter, model=GOOD, input=rows(1), output=tmp_path)
    journal = tmp_path / f"{file}.jsonl"
    number = len(journal.read_bytes().splitlines()) + 1
    with journal.open("ab") as lines:
        lines.write(orjson.dumps(line) + b"\n")
    with pytest.raises(UserError, match=rf"{file}\.jsonl:{number}: not a rollout: .*{why}.*Remove the line"):
        ludus.collect(counter, model=GOOD, input=rows(1), output=tmp_path, resume=True)


def test_resume_without_an_output_is_refused(counter, rows, tmp_path):
    with pytest.raises(UserError, match="--resume needs the folder of the collection to resume. Add --output DIR"):
        ludus.collect(counter, model=GOOD, input=rows(1), resume=True)
    (tmp_path / "script.yaml").write_text("- done\n")
    done = command(tmp_path, "--resume")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Add --output DIR" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("option", [{"repeats": 0}, {"repeats": -1}, {"limit": -1}, {"limit": 0}, {"concurrency": 0}])
def test_repeats_limit_and_concurrency_below_one_are_refused(counter, rows, option):
    with pytest.raises(UserError, match=f"{next(iter(option))} must be at least 1, not "):
        ludus.collect(counter, model=GOOD, input=rows(1), **option)


@pytest.mark.parametrize("reference", [None, "mcqa", 3, [1]])
def test_rows_with_any_agent_ref_are_collected_and_resumed(counter, rows, tmp_path, reference):
    given = rows(2, agent_ref=reference)
    ludus.collect(counter, model=GOOD, input=given, output=tmp_path)
    again = ludus.collect(counter, model=GOOD, input=given, output=tmp_path, resume=True)
    assert again.metrics["counts"]["completed"] == len(list(again)) == 2


def test_a_task_field_is_never_read_back_as_a_record_field(rows, tmp_path):
    """Also when the record does not use the field."""

    class Reading(Resources):
        async def verify(self, task: Any, response: Any) -> float:
            return float(task.mask == "a task's own")

    theirs = {"mask": "a task's own", "turn_rewards": "many", "reward_components": 7, "parent": 1, "receipt": 2}
    result = ludus.collect(Reading, model=GOOD, input=rows(2, **theirs), output=tmp_path)
    assert result.metrics["counts"]["completed"] == 2
    for line in (tmp_path / "rollouts.jsonl").read_bytes().splitlines():
        row = orjson.loads(line)
        assert not {"mask", "turn_rewards", "reward_components", "parent"} & set(row)
        assert row["task_fields"] == theirs
        assert row["receipt"] != 2
    again = ludus.collect(Reading, model=GOOD, input=rows(2, **theirs), output=tmp_path, resume=True)
    assert again.metrics["counts"]["completed"] == 2
    for rollout in again:
        assert (rollout.verdict.mask, rollout.verdict.turn_rewards, rollout.verdict.components) == (None, [], {})
        assert rollout.job.row.items() >= theirs.items()


def test_rows_can_be_read_from_standard_input(tmp_path):
    (tmp_path / "script.yaml").write_text("- done\n")
    row = {"responses_create_params": {"input": "go"}, "initial_count": 0, "expected_count": 0}
    lines = b"".join(orjson.dumps({**row, "n": n}) + b"\n" for n in range(5))
    base = [sys.executable, "-m", "ludus", "collect", "example_session_state_mgmt", "--model", "scripted:script.yaml"]
    for number, name in enumerate(("-", "/dev/stdin")):
        words = [*base, "--input", name, "--output", f"out{number}", "--json"]
        done = forked.run(words, cwd=tmp_path, input=lines, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert orjson.loads(done.stdout)["counts"]["completed"] == 5


WITH_SETS = """
import ludus

class Words(ludus.Resources):
    class Config(ludus.ResourcesConfig):
        words: set[str] = {"one", "two", "three", "four", "five"}
        groups: dict[str, list[frozenset[frozenset[str]]]] = {"a": [frozenset({frozenset("xyz"), frozenset("w")})]}
        order: list[str] = ["b", "a"]

    async def verify(self, task, response):
        return 1.0
"""


def test_settings_that_are_sets_have_the_same_identity_in_every_process(tmp_path):
    (tmp_path / "resources.py").write_text(WITH_SETS)
    (tmp_path / "environment.yaml").write_text("name: words\nresources: resources.py:Words\n")
    (tmp_path / "script.yaml").write_text("- done\n")
    row = {"responses_create_params": {"input": "go"}}
    (tmp_path / "rows.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    words = ["collect", ".", "--model", "scripted:script.yaml", "--input", "rows.jsonl", "-o", "out"]
    for hash_seed, more in (("1", ()), ("2", ("--resume", "--repeats", "2")), ("3", ("--resume", "--repeats", "3"))):
        again = subprocess.run(
            [sys.executable, "-m", "ludus", *words, *more],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            input="",
        )
        assert again.returncode == 0, again.stderr
    lines = (tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    assert len({orjson.loads(line)["receipt"] for line in lines}) == 1
    wiring = orjson.loads((tmp_path / "out" / "run.json").read_bytes())["identity"]["environments"]["words"]
    assert wiring["settings"]["words"] == ["five", "four", "one", "three", "two"]
    assert wiring["settings"]["groups"] == {"a": [[["w"], ["x", "y", "z"]]]}
    assert wiring["settings"]["order"] == ["b", "a"]


def test_resume_together_with_overwrite_is_refused_and_deletes_nothing(counter, rows, tmp_path):
    ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path)
    before = (tmp_path / "rollouts.jsonl").read_bytes()
    with pytest.raises(UserError, match="--overwrite deletes it. Leave one of them out"):
        ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, resume=True, overwrite=True)
    assert (tmp_path / "rollouts.jsonl").read_bytes() == before


def test_a_forced_resume_with_other_rows_runs_at_full_concurrency(counter, rows, tmp_path):
    ludus.collect(counter, model=GOOD, input=rows(20), output=tmp_path)
    together, waiting = asyncio.Event(), []

    async def answer(request: ludus.Request) -> str:
        waiting.append(request)
        if len(waiting) == 4:
            together.set()
        await asyncio.wait_for(together.wait(), CEILING)
        return "done"

    forced = {"output": tmp_path, "resume": True, "force": True}
    result = ludus.collect(counter, model=ScriptedModel(answer, "m"), input=rows(4, more=True), concurrency=4, **forced)
    assert result.metrics["counts"] == {"dispatched": 24, "completed": 24, "failed": 0, "masked": 0}


def test_a_forced_resume_with_other_rows_does_not_stop_at_the_first_failure(counter, rows, tmp_path):
    ludus.collect(counter, model=GOOD, input=rows(20), output=tmp_path)
    answers = iter([{"error": {"kind": "refused", "cause": "cannot reach http://127.0.0.1:9"}}])
    once = ScriptedModel(lambda request: next(answers, "done"), name="m")
    forced = {"output": tmp_path, "resume": True, "force": True, "concurrency": 1}
    result = ludus.collect(counter, model=once, input=rows(4, more=True), **forced)
    assert result.metrics["counts"] == {"dispatched": 24, "completed": 23, "failed": 1, "masked": 0}


def test_resume_with_more_repeats_updates_run_json(counter, rows, tmp_path):
    ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=2)
    first = orjson.loads((tmp_path / "run.json").read_bytes())
    ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=4, resume=True)
    second = orjson.loads((tmp_path / "run.json").read_bytes())
    assert second == {**first, "options": {**first["options"], "repeats": 4}}
    with pytest.raises(UserError, match="holds 4 repeats"):
        ludus.collect(counter, model=GOOD, input=rows(3), output=tmp_path, repeats=1, resume=True)
    assert orjson.loads((tmp_path / "run.json").read_bytes()) == second, "a refused run must not change run.json"


def test_settings_and_paths_that_json_cannot_hold_are_recorded_and_resumed(rows, tmp_path):
    class Big(Resources):
        class Config(ludus.ResourcesConfig):
            big: int = 0

        async def verify(self, task: ludus.Task, response: ludus.Response) -> float:
            return 1.0

    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/rows-\xff.jsonl"))
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows(2)))
    given = {"model": GOOD, "input": path, "output": tmp_path / "out"}
    ludus.collect(Big, settings={"resources.big": 10**23}, **given)
    ludus.collect(Big, settings={"resources.big": 10**23}, repeats=2, resume=True, **given)
    with pytest.raises(UserError, match=r"settings.big was 1000"):
        ludus.collect(Big, settings={"resources.big": 10**23 + 1}, repeats=2, resume=True, **given)


@pytest.mark.parametrize("name", ["equivalence_llm_judge", "genrm_compare", "conversational_tool_use_simulation"])
def test_a_missing_judge_is_found_before_a_model_is_called_and_the_corrected_run_may_use_the_same_folder(
    tmp_path, name
):
    asked = []

    def respond(request):
        asked.append(request)
        return "[[A=B]]"

    (tmp_path / "judge.yaml").write_text("- '[[A=B]]'\n")
    options = {"model": ScriptedModel(respond), "output": tmp_path / "run", "limit": 2}
    with pytest.raises(UserError, match=r"these rows need a judge\. Name a model with:? --set resources\.judge=SPEC"):
        ludus.collect(name, **options)
    assert asked == []
    judge = {"resources.judge": f"scripted:{tmp_path / 'judge.yaml'}"}
    result = ludus.collect(name, **options, settings=judge)
    assert asked
    assert result.metrics["counts"]["dispatched"] == 2
    assert "no_judge" not in (tmp_path / "run" / "failures.jsonl").read_text()
    with pytest.raises(UserError, match="already holds a collection"):
        ludus.collect(name, **options, settings=judge)


def test_failures_that_are_results_are_not_replaced(tmp_path):
    class Crashes(Resources):
        async def verify(self, task, response):
            raise ValueError("no luck")

    options = {
        "model": ScriptedModel(["x"]),
        "output": tmp_path / "run",
        "input": [{"responses_create_params": {"input": "x"}}],
    }
    ludus.collect(Crashes, **options)
    with pytest.raises(UserError, match="already holds a collection"):
        ludus.collect(Crashes, **options)
