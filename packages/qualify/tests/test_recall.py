"""A verifier is mended after two policy versions were trained on its rewards: every wrong reward is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import forked
import pytest
from ludus_qualify.recall import Recall, recall
from ludus_qualify.recall_command import show_recall
from ludus_qualify.recalled import FINDINGS
from rich.console import Console
from waiting import CEILING

import ludus
from ludus import Request, Response, ScriptedModel
from ludus.errors import UserError
from ludus.rescore import rescoring
from ludus.response import function_call, message
from ludus.tokens import Tokens

#: The first verifier takes any answer that begins with the right one. `sum` answers with the total alone.
WRONG = '''
import ludus
from ludus import Resources, Response, Verdict, tool

class Adding(Resources):
    class Task(ludus.Task):
        wanted: str

    @tool
    def sum(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    def verify(self, task: Task, response: Response) -> Verdict:
        said = response.output_text
        mask = "odd" if said.startswith("odd") else None
        return Verdict(float(said.removeprefix("odd ").startswith(task.wanted)), mask=mask)
'''

#: The second one demands the whole answer, masks empty answers, and cannot judge `unclear`. `sum` has another format.
MENDED = (
    WRONG.replace("startswith(task.wanted)", "__eq__(task.wanted)")
    .replace('"odd" if said.startswith("odd")', '"odd" if said.startswith("odd") or not said')
    .replace("said = response.output_text", "said = response.output_text\n        assert said != 'unclear'")
    .replace("return str(a + b)", "return f'{a} + {b} = {a + b}'")
)


def answers(version: str | None, *said: str) -> ScriptedModel:
    """A model that answers the rows in order. `call X` calls the tool before it answers X."""
    given: dict[str, str] = {}

    def respond(request: Request) -> Response:
        text = given.setdefault(str(request.session), said[len(given) % len(said)])
        tokens = Tokens([1], [2], [0.0], version) if version is not None else None
        if text.startswith("call ") and request.turn == 0:
            return Response.of(function_call("sum", {"a": 1, "b": 2}, call_id="c"), model="policy", tokens=tokens)
        return Response.of(message(text.removeprefix("call ")), model="policy", tokens=tokens)

    return ScriptedModel(respond)


@pytest.fixture
def adding(tmp_path: Path) -> Path:
    folder = tmp_path / "adding"
    folder.mkdir()
    (folder / "environment.yaml").write_text("name: adding\nresources: resources.py:Adding\n")
    (folder / "resources.py").write_text(WRONG)
    return folder


def collect(environment: Path, output: Path, model: ScriptedModel, tasks: int = 1, **options: Any) -> Path:
    rows = [
        {"task_id": f"row-{number}", "responses_create_params": {"input": f"{number}"}, "wanted": "3"}
        for number in range(tasks)
    ]
    ludus.collect(environment, model=model, input=rows, output=output, concurrency=1, **options)
    return output


def runs_of_two_versions(folder: Path, environment: Path) -> list[Path]:
    """Two runs with all findings, by two policy versions."""
    first = answers("step-1", "3", "3 apples", "odd 3 apples", "call 3 pears", "call 3", "4")
    second = answers("step-2", "3 apples", "", "unclear", "3 pears", "4", "3")
    return [collect(environment, folder / "week-1", first, 6), collect(environment, folder / "week-2", second, 6)]


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "150", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    whole = [sys.executable, "-m", "ludus", *map(str, arguments)]
    return forked.run(whole, cwd=cwd, capture_output=True, text=True, env=variables, timeout=CEILING, check=False)


def findings(counts: dict[str, Any]) -> dict[str, int]:
    return {name: counts[name] for name in (*FINDINGS, "trained_on", "rollouts") if counts[name]}


def test_a_mended_verifier_names_every_wrong_reward_by_version_row_and_run(tmp_path: Path, adding: Path) -> None:
    runs = runs_of_two_versions(tmp_path, adding)
    (adding / "resources.py").write_text(MENDED)
    untouched = collect(adding, tmp_path / "week-3", answers("step-3", "3", "4"), 2)
    before = [(run / "rollouts.jsonl").read_bytes() for run in runs]

    done = command("recall", "--env", "adding", *runs, untouched, "--output", "out", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # one rollout cannot be judged
    found = json.loads(done.stdout)

    week_1 = {"wrong": 1, "was_masked": 1, "drifted": 1, "unchanged": 3, "trained_on": 5, "rollouts": 6}
    week_2 = {"wrong": 2, "newly_masked": 1, "failed": 1, "unchanged": 2, "trained_on": 6, "rollouts": 6}
    week_3 = {"fresh": 2, "trained_on": 2, "rollouts": 2}
    assert [findings(run) for run in found["runs"]] == [week_1, week_2, week_3]
    assert {each["policy_version"]: findings(each) for each in found["policies"]} == {
        "step-1": week_1,
        "step-2": week_2,
        "step-3": week_3,
    }
    total = {name: sum(week.get(name, 0) for week in (week_1, week_2, week_3)) for name in FINDINGS}
    assert {name: found[name] for name in FINDINGS} == total
    assert found["rollouts"] == sum(total.values()) == 14

    rows = {
        each.pop("task_id"): {name: count for name, count in each.items() if count} for each in found["dataset_rows"]
    }
    assert rows == {
        "row-0": {"wrong": 1},
        "row-1": {"wrong": 1, "newly_masked": 1},
        "row-2": {"was_masked": 1},
        "row-3": {"wrong": 1, "drifted": 1},
    }
    changes = [json.loads(line) for line in (tmp_path / "out" / "changes.jsonl").read_text().splitlines()]
    assert [each for each in changes if each["finding"] != "failed"] == found["changes"]
    wrong = [(each["task_id"], each["before"], each["after"]) for each in changes if each["finding"] == "wrong"]
    assert wrong == [("row-1", 1.0, 0.0), ("row-0", 1.0, 0.0), ("row-3", 1.0, 0.0)]
    (failure,) = found["failures"]
    assert (failure["task_id"], failure["stage"], failure["kind"], failure["before"]) == (
        "row-2",
        "verify",
        "crash",
        0.0,
    )
    assert "after" not in failure

    assert [(run / "rollouts.jsonl").read_bytes() for run in runs] == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["changes.jsonl", "week-1", "week-2"]
    assert found["runs"][2]["corrected"] is None


def test_the_corrected_runs_have_the_new_rewards_and_nothing_more_to_recall(tmp_path: Path, adding: Path) -> None:
    runs = runs_of_two_versions(tmp_path, adding)
    (adding / "resources.py").write_text(MENDED)
    command("recall", "-e", "adding", *runs, "-o", "out", cwd=tmp_path)
    corrected = ludus.load(tmp_path / "out" / "week-2")
    assert {each.task_id: (each.outcome.value, each.reward) for each in corrected} == {
        "row-0": ("completed", 0.0),
        "row-1": ("masked", 0.0),
        "row-3": ("completed", 0.0),
        "row-4": ("completed", 0.0),
        "row-5": ("completed", 1.0),
    }
    assert [(each.task_id, each.reward) for each in corrected.failures()] == [("row-2", None)]
    again = json.loads(command("recall", "-e", "adding", "out/week-1", "--json", cwd=tmp_path).stdout)
    assert findings(again) == {"fresh": 6, "trained_on": 5, "rollouts": 6}


def test_the_tables_show_the_wrong_rewards_of_each_version(tmp_path: Path, adding: Path) -> None:
    runs = runs_of_two_versions(tmp_path, adding)
    (adding / "resources.py").write_text(MENDED)
    done = command("recall", "-e", "adding", *runs, cwd=tmp_path)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["step-1", "5", "1", "0", "1", "1", "0"] in lines
    assert ["step-2", "6", "2", "1", "0", "0", "1"] in lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adding", "week-1", "week-2"]  # nothing is written


def test_a_rollout_that_two_versions_wrote_is_counted_once(tmp_path: Path, adding: Path) -> None:
    run = collect(adding, tmp_path / "run", answers("step-1", "call 4"))
    row = json.loads((run / "rollouts.jsonl").read_text())
    row["model_calls"][1]["policy_version"] = "step-2"
    (run / "rollouts.jsonl").write_text(json.dumps(row) + "\n")
    (policy,) = recall([run], adding, all_rows=True).summary()["policies"]
    assert (policy["policy_version"], policy["rollouts"]) == ("step-1, step-2", 1)


def test_a_run_without_versions_is_counted_by_its_model(tmp_path: Path, adding: Path) -> None:
    run = collect(adding, tmp_path / "run", answers(None, "4"))
    (policy,) = recall([run], adding).summary()["policies"]
    assert (policy["policy_version"], policy["model"], policy["fresh"]) == (None, "policy", 1)


def test_rollouts_of_other_environments_are_left_alone(tmp_path: Path, adding: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "environment.yaml").write_text("name: other\nresources: resources.py:Adding\n")
    (other / "resources.py").write_text(WRONG)
    rows = [
        {"agent_ref": {"name": name}, "responses_create_params": {"input": name}, "wanted": "3"}
        for name in ("adding", "other")
    ]
    mixed = tmp_path / "mixed"
    ludus.collect([adding, other], model=answers("step-1", "3 apples"), input=rows, output=mixed)
    (adding / "resources.py").write_text(MENDED)
    done = command("recall", "-e", "adding", "mixed", "-o", "out", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert findings(found) == {"wrong": 1, "trained_on": 1, "rollouts": 1}
    assert found["runs"][0]["other_environments"] == 1
    rewards = {each.job.environment: each.reward for each in ludus.load(tmp_path / "out" / "mixed")}
    assert rewards == {"adding": 0.0, "other": 1.0}


def test_an_environment_that_no_rollout_names_is_refused_with_the_names_of_those_that_are(
    tmp_path: Path, adding: Path
) -> None:
    run = collect(adding, tmp_path / "run", answers("step-1", "4"))
    for more in ((), ("--json", "--output", "out")):
        done = command("recall", "-e", "mcqa", run, *more, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"no rollout of {run} is of the environment mcqa, they are of adding" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_environment_that_run_json_does_not_name_is_refused_before_a_rollout_is_scored(
    tmp_path: Path, adding: Path
) -> None:
    run = collect(adding, tmp_path / "run", answers("step-1", "4"))
    with pytest.raises(UserError, match=r"is of the environment mcqa, they are of adding\. Use --env"):
        next(Recall([run], "mcqa").rescorings())
    (run / "run.json").unlink()
    assert next(Recall([run], "mcqa").rescorings())


@pytest.mark.parametrize("width", [60, 80])
def test_the_counts_are_readable_on_a_narrow_terminal(
    tmp_path: Path, adding: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = collect(adding, tmp_path / "short", answers("step-1", "4"))
    long_name = "x" * 50
    long_run = collect(adding, tmp_path / long_name, answers("step-2", "4"))
    monkeypatch.chdir(tmp_path)
    found = recall([short.name, long_run.name], adding)
    console = Console(width=width, file=StringIO(), force_terminal=False)
    show_recall(console, found)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "…" not in shown
    assert f"run {long_name}: 1 trained on, 0 wrong, 0 newly masked, 0 was masked, 0 drifted, 0 failed" in shown
    assert ["step-1", "1", "0", "0", "0", "0", "0"] in [line.split() for line in shown.splitlines()]
    lines = [line.split() for line in shown.splitlines()]
    assert lines.index(["policy", "trained", "newly", "was"]) + 1 == lines.index(
        ["version", "on", "wrong", "masked", "masked", "drifted", "failed"]
    )


def test_all_scores_rollouts_with_a_valid_receipt_too(tmp_path: Path, adding: Path) -> None:
    run = collect(adding, tmp_path / "run", answers("step-1", "4"))
    assert findings(recall([run], adding).summary()) == {"fresh": 1, "trained_on": 1, "rollouts": 1}
    assert findings(recall([run], adding, all_rows=True).summary()) == {"unchanged": 1, "trained_on": 1, "rollouts": 1}


def test_two_runs_of_the_same_name_get_folders_of_their_own(tmp_path: Path, adding: Path) -> None:
    runs = [collect(adding, tmp_path / name / "run", answers(name, "3 apples")) for name in ("a", "b")]
    (adding / "resources.py").write_text(MENDED)
    command("recall", "-e", "adding", *runs, "-o", "out", cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["changes.jsonl", "run", "run-2"]


def test_a_full_output_and_a_run_that_is_named_twice_are_refused(tmp_path: Path, adding: Path) -> None:
    run = collect(adding, tmp_path / "run", answers("step-1", "4"))
    with pytest.raises(UserError, match="exists already"):
        recall([run], adding, output=run)
    with pytest.raises(UserError, match="is the same run as"):
        recall([run, run / "rollouts.jsonl"], adding)


def test_a_run_in_which_everything_failed_has_nothing_to_recall(tmp_path: Path, adding: Path) -> None:
    run = collect(adding, tmp_path / "run", ScriptedModel([{"error": {"kind": "crash", "cause": "gone"}}]))
    assert recall([run], adding).summary()["rollouts"] == 0


def test_helper_processes_find_the_same_as_one_process(
    tmp_path: Path, adding: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings are told by the line, also where blocks of lines are scored in other processes."""
    without_tool = MENDED.replace("    @tool\n", "")
    (adding / "resources.py").write_text(WRONG.replace("    @tool\n", ""))
    run = collect(adding, tmp_path / "run", answers("step-1", "3", "3 apples", "odd 3 apples", "unclear", ""), 2000)
    (adding / "resources.py").write_text(without_tool)
    fresh = tmp_path / "mended"
    adding.rename(fresh)  # a module of its own: this process has imported the first one
    alone = recall([run], fresh, concurrency=1).summary()
    assert findings(alone)["wrong"] == 400
    monkeypatch.setattr(rescoring, "MIN_BYTES_FOR_HELPERS", 0)
    monkeypatch.setattr(rescoring, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(rescoring, "processors", lambda: 3)
    assert recall([run], fresh).summary() == alone
